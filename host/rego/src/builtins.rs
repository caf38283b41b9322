//! Which built-in functions a policy may call, and with which arguments.
//!
//! Security: no allowed function reads the outside world, and no single call can take unbounded
//! time or memory. Neither timer nor memory budget interrupts a built-in (measured:
//! `numbers.range(1, 2e7)` 0.5 s and 474 MB, `replace` doubling 23 s and 4 GiB).

use regorus::unstable::{Expr, ExprRef};

use crate::functions::opa::MAX_PROGRAM_BYTES;
use crate::functions::{format, texts};
use crate::syntax;
use ArgumentRule::{Concat, Free, Glob, Literal, Regex, RegexReplace, Replace, ReplaceN, Sprintf};
use ResultSize::{
    Concatenated, Digest, Encoded, Fact, Fields, First, Flattened, Formatted, Item, Joined, Keys, Matches, Merged,
    Named, Numbers, Parameters, Parts, Paths, Pieces, ReplacedSecond, Scalar, Small, Submatches, Sum, Written,
};
use tollgate_core::{glob, re2};

/// Maximum number of elements of the array literal that `sprintf` and `concat` take.
const MAX_LITERAL_ITEMS: usize = 16;
const MAX_PATTERN_BYTES: usize = 512;
/// A literal replacement may be this many times as long as what it replaces.
pub(crate) const REPLACE_FACTOR: usize = 8;
/// Longest replacement of `regex.replace`.
const MAX_REPLACEMENT_BYTES: usize = 32;

/// Conditions on the arguments of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ArgumentRule {
    /// Output and time are linear in the input.
    Free,
    /// The argument with this index must be a short literal text.
    Literal(usize),
    /// `concat`: joins distinct or few texts.
    Concat,
    /// `sprintf`: literal format without large widths, literal array.
    Sprintf,
    /// `replace`: literal texts, so that the growth per call is bounded.
    Replace,
    /// `strings.replace_n`: a literal object of literal texts.
    ReplaceN,
    /// The argument with this index must be a short literal text that is a regular expression.
    Regex(usize),
    /// `regex.replace`: literal expression and replacement, so that the growth per call is bounded.
    RegexReplace,
    /// The first argument must be a short literal text that is a glob.
    Glob,
}

/// How large the result of a call can be, for [`crate::growth`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResultSize {
    /// A boolean, a small number or a short text about a value of any type.
    Fact,
    /// A boolean, a small number, a short text.
    Small,
    /// The sum of the first argument's items.
    Sum,
    /// A text or number at most this many times as long as the longest in the
    /// first argument.
    Scalar { factor: u64 },
    /// At most as large as the first argument.
    First,
    /// An item of the first argument, or the third argument.
    Item,
    /// The keys of the first argument.
    Keys,
    /// An object of a few parts of the first argument.
    Fields,
    /// The items of all arguments.
    Joined,
    /// The items of all items of the first argument.
    Merged,
    /// A few small numbers.
    Parts,
    /// The pieces of a text.
    Pieces,
    /// What is between the separators of a text.
    Parameters,
    /// A hash, written out.
    Digest,
    /// The texts of the first argument, encoded.
    Encoded,
    /// The items of the first argument and of its items.
    Flattened,
    /// Pairs of keys of the arguments.
    Named,
    /// Paths of nodes of a graph.
    Paths,
    /// A text a few times as long as the second argument.
    ReplacedSecond,
    /// Lists of pieces of the second argument.
    Submatches,
    /// The pieces of the second argument.
    Matches,
    /// A list of numbers.
    Numbers,
    /// One text with the texts of all arguments.
    Concatenated,
    /// All arguments written out.
    Formatted,
    /// The first argument written out, with the second one around each part.
    Written,
}

const SAME: ResultSize = Scalar { factor: 1 };
/// A letter can be three times as long in upper or lower case, or encoded.
const CASED: ResultSize = Scalar { factor: 3 };
const REPLACED: ResultSize = Scalar {
    factor: REPLACE_FACTOR as u64,
};
/// Before and after each letter stands what replaces nothing.
const SUBSTITUTED: ResultSize = Scalar {
    factor: MAX_REPLACEMENT_BYTES as u64 + 2,
};
/// A number with a unit's zeros, or in another base.
const DIGITS: ResultSize = Scalar { factor: 4 };
/// A whole number with all digits that a float stands for: 309.
const WHOLE: ResultSize = Scalar { factor: 5 };

const ALLOWED: &[(ArgumentRule, ResultSize, &str)] = &[
    (
        Free,
        SAME,
        "abs base64.decode base64url.decode hex.decode strings.reverse substring to_number trim_prefix trim_space \
         trim_suffix urlquery.decode",
    ),
    (Free, Joined, "array.concat object.union"),
    (
        Free,
        First,
        "array.reverse array.slice json.filter json.remove net.cidr_merge object.filter object.remove sort",
    ),
    (Free, DIGITS, "format_int units.parse units.parse_bytes"),
    (Free, WHOLE, "ceil floor round"),
    (Concat, Concatenated, "concat"),
    (
        Free,
        Small,
        "base64.is_valid contains crypto.hmac.equal endswith indexof json.is_valid net.cidr_contains net.cidr_intersects \
         net.cidr_is_valid object.subset semver.compare semver.is_valid startswith strings.any_prefix_match \
         strings.any_suffix_match strings.count time.add_date time.parse_rfc3339_ns time.weekday uri.is_valid",
    ),
    (
        Free,
        Fact,
        "count is_array is_boolean is_null is_number is_object is_set is_string type_name",
    ),
    (Glob, Small, "glob.match"),
    (Regex(0), Matches, "regex.find_n regex.split"),
    (Regex(0), Small, "regex.match"),
    (RegexReplace, SUBSTITUTED, "regex.replace"),
    (Literal(0), Small, "regex.is_valid"),
    (Free, Numbers, "net.cidr_expand numbers.range numbers.range_step"),
    (
        Free,
        Concatenated,
        "bits.and bits.lsh bits.negate bits.or bits.rsh bits.xor",
    ),
    (Free, Item, "intersection max min object.get"),
    (
        Free,
        CASED,
        "base64.encode base64url.encode base64url.encode_no_pad hex.encode lower upper urlquery.encode",
    ),
    (
        Free,
        Digest,
        "crypto.hmac.md5 crypto.hmac.sha1 crypto.hmac.sha256 crypto.hmac.sha512 crypto.md5 crypto.sha1 crypto.sha256",
    ),
    (Free, Encoded, "urlquery.encode_object"),
    (Free, Flattened, "array.flatten"),
    (Free, Keys, "graph.reachable object.keys"),
    (Free, Named, "net.cidr_contains_matches"),
    (Free, Paths, "graph.reachable_paths"),
    (Regex(0), Submatches, "regex.find_all_string_submatch_n"),
    (ReplaceN, ReplacedSecond, "strings.replace_n"),
    (Replace, REPLACED, "replace"),
    (Free, Pieces, "indexof_n split strings.split_n"),
    (Free, Parameters, "urlquery.decode_object"),
    (Free, Fields, "uri.parse uuid.parse"),
    (Free, Written, "json.marshal json.marshal_with_options"),
    (Sprintf, Formatted, "sprintf"),
    (Free, Sum, "sum"),
    (Free, Parts, "time.clock time.date"),
    (Literal(1), SAME, "trim trim_left trim_right"),
    (Free, Merged, "object.union_n union"),
];

/// Functions that the engine does not have, by the number of their arguments.
const OWN: &[(usize, &str)] = &[
    (
        1,
        "array.flatten base64.decode base64.encode base64.is_valid base64url.decode base64url.encode \
         base64url.encode_no_pad crypto.md5 crypto.sha1 crypto.sha256 hex.decode hex.encode net.cidr_expand \
         net.cidr_is_valid net.cidr_merge uri.is_valid uri.parse urlquery.decode urlquery.decode_object \
         urlquery.encode urlquery.encode_object uuid.parse",
    ),
    (
        2,
        "crypto.hmac.equal crypto.hmac.md5 crypto.hmac.sha1 crypto.hmac.sha256 crypto.hmac.sha512 graph.reachable \
         graph.reachable_paths net.cidr_contains net.cidr_contains_matches net.cidr_intersects",
    ),
    (3, "strings.split_n"),
];

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) message: String,
    pub(crate) hint: &'static str,
}

/// Whether the engine has a built-in of that name, allowed or not. A rule of a bundle must not hide
/// one.
pub(crate) fn exists(name: &str) -> bool {
    regorus::unstable::BUILTINS.contains_key(name) || allowed(name).is_some()
}

pub(crate) fn result_size(name: &str) -> Option<ResultSize> {
    allowed(name).map(|(_, result_size)| result_size)
}

/// The functions that a policy may call.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    ALLOWED.iter().flat_map(|(_, _, names)| names.split_whitespace())
}

fn allowed(name: &str) -> Option<(ArgumentRule, ResultSize)> {
    let is_named = |names: &str| names.split_whitespace().any(|known| known == name);
    let mut rows = ALLOWED.iter();
    rows.find_map(|&(rule, result_size, names)| is_named(names).then_some((rule, result_size)))
}

pub(crate) fn arity(name: &str) -> Option<usize> {
    match regorus::unstable::BUILTINS.get(name) {
        Some((_, arity)) => Some(usize::from(*arity)),
        None => own_arity(name),
    }
}

/// Number of arguments of a function that the engine does not have.
fn own_arity(name: &str) -> Option<usize> {
    let is_named = |names: &str| names.split_whitespace().any(|known| known == name);
    let mut own = OWN.iter().filter(|_| !regorus::unstable::BUILTINS.contains_key(name));
    own.find_map(|&(arity, names)| is_named(names).then_some(arity))
}

/// The argument that takes the result of a call of a function that the engine does not have, and so does
/// not know that there is one.
pub(crate) fn own_result<'a>(function: &Expr, parameters: &'a [ExprRef]) -> Option<&'a Expr> {
    let (result, arguments) = parameters.split_last()?;
    (own_arity(&syntax::dotted(function)) == Some(arguments.len())).then_some(&**result)
}

pub(crate) fn check(name: &str, parameters: &[ExprRef]) -> Result<(), Refusal> {
    let Some((rule, _)) = allowed(name) else {
        return Err(Refusal {
            message: format!("function `{name}` cannot be used in a policy"),
            hint: hint(name),
        });
    };
    let refuse = |message: String, hint| Err(Refusal { message, hint });
    let observed = parameters.len();
    if let Some(arity) = arity(name).filter(|arity| *arity != observed) {
        let arguments = if arity == 1 { "argument" } else { "arguments" };
        return refuse(
            format!("`{name}` takes {arity} {arguments}, this call has {observed}"),
            "OPA's reference of built-in functions lists them",
        );
    }
    let literal = |at: usize| parameters.get(at).and_then(|parameter| syntax::text(parameter));
    match rule {
        Free => Ok(()),
        Regex(at) => check_pattern(name, at, literal(at)),
        RegexReplace => {
            check_pattern(name, 1, literal(1))?;
            match literal(2) {
                Some(new) if new.len() <= MAX_REPLACEMENT_BYTES && texts::has_plain_groups(new) => Ok(()),
                _ => refuse(
                    format!(
                        "the replacement of `{name}` is not a literal text of at most {MAX_REPLACEMENT_BYTES} bytes, in \
                         which each `$` is one of `$$`, `$1` and `${{1}}`"
                    ),
                    "write it in place, with `{}` around the number of a group before a letter or digit",
                ),
            }
        }
        Glob => {
            check_literal(name, 0, literal(0))?;
            glob::Pattern::compile(literal(0).unwrap_or_default(), &[])
                .map(drop)
                .map_err(|error| Refusal {
                    message: format!("the pattern of `{name}` is no glob: {error}"),
                    hint: "`*`, `**`, `?`, `[a-z]` and `{a,b}` are special; a backslash makes them themselves",
                })
        }
        Literal(at) => check_literal(name, at, literal(at)),
        Replace => match (literal(1), literal(2)) {
            // An empty text is found before each letter, so the result would grow by all of `new` there.
            (Some(old), Some(new)) if !old.is_empty() && new.len() <= REPLACE_FACTOR.saturating_mul(old.len()) => {
                Ok(())
            }
            (Some(_), Some(_)) => refuse(
                format!("`replace` makes a text grow by more than {REPLACE_FACTOR} times"),
                "replace something longer, by something shorter",
            ),
            _ => refuse(
                "old and new of `replace` are not literal texts".into(),
                "write both in place",
            ),
        },
        ReplaceN => {
            let Some(Expr::Object { fields, .. }) = parameters.first().map(AsRef::as_ref) else {
                return refuse(
                    "`strings.replace_n` takes a literal object".into(),
                    "write old and new texts in place",
                );
            };
            let is_bounded = |old: &str, new: &str| {
                !old.is_empty()
                    && new.len() <= REPLACE_FACTOR.saturating_mul(old.len())
                    && old.len() <= MAX_PATTERN_BYTES
            };
            let mut pairs = fields
                .iter()
                .map(|(_, old, new)| syntax::text(old).zip(syntax::text(new)));
            if fields.len() <= MAX_LITERAL_ITEMS
                && pairs.all(|pair| pair.is_some_and(|(old, new)| is_bounded(old, new)))
            {
                return Ok(());
            }
            refuse(
                format!(
                    "`strings.replace_n` has more than {MAX_LITERAL_ITEMS} pairs, one that is no literal text, or one \
                     that makes a text grow by more than {REPLACE_FACTOR} times"
                ),
                "replace something longer, by something shorter",
            )
        }
        Concat => match (literal(0), parameters.get(1).map(AsRef::as_ref)) {
            (Some(separator), _) if separator.len() > 16 => {
                refuse("the separator of `concat` has more than 16 bytes".into(), "shorten it")
            }
            // A set holds each text once. An array could hold a long one as often as a loop goes round.
            (Some(_), Some(Expr::SetCompr { .. } | Expr::Set { .. })) => Ok(()),
            (Some(_), Some(Expr::Array { items, .. })) if items.len() <= MAX_LITERAL_ITEMS => Ok(()),
            (Some(_), Some(list)) if rooted_in_input(list) => Ok(()),
            _ => refuse(
                "`concat` joins something that could hold one text many times".into(),
                "write the separator in place and join a set comprehension `{x | …}`, a short array literal, or a list of `input`",
            ),
        },
        Sprintf => match (literal(0), parameters.get(1).map(AsRef::as_ref)) {
            (Some(format), Some(Expr::Array { items, .. })) if items.len() <= MAX_LITERAL_ITEMS => {
                match format::unsupported(format) {
                    None => Ok(()),
                    Some(verb) => refuse(
                        format!("`{verb}` in the format of `sprintf` is not supported"),
                        "use `%s`, `%d`, `%v` and `%f`, with a width of at most two digits",
                    ),
                }
            }
            _ => refuse(
                "`sprintf` takes a literal format and a literal array".into(),
                "write both in place, with at most 16 values",
            ),
        },
    }
}

fn check_pattern(name: &str, at: usize, literal: Option<&str>) -> Result<(), Refusal> {
    check_literal(name, at, literal)?;
    let compiled = re2::compile_within(literal.unwrap_or_default(), MAX_PROGRAM_BYTES);
    compiled.map(drop).map_err(|error| Refusal {
        message: format!("the pattern of `{name}` is no regular expression: {error}"),
        hint: "write it in the syntax of RE2",
    })
}

fn check_literal(name: &str, at: usize, literal: Option<&str>) -> Result<(), Refusal> {
    let (message, hint) = match literal {
        Some(text) if text.len() <= MAX_PATTERN_BYTES => return Ok(()),
        Some(text) => (
            format!(
                "argument {} of `{name}` has {} bytes, {MAX_PATTERN_BYTES} are allowed",
                at + 1,
                text.len()
            ),
            "shorten it, or use several",
        ),
        None => (
            format!("argument {} of `{name}` is not a literal text", at + 1),
            "write the text in place; use `startswith` and `endswith` for what comes from data",
        ),
    };
    Err(Refusal { message, hint })
}

/// Whether an expression is `input.…`, whose size the request determines.
fn rooted_in_input(expr: &Expr) -> bool {
    let mut expr = expr;
    while let Expr::RefDot { refr, .. } = expr {
        expr = refr;
    }
    matches!(expr, Expr::Var { span, .. } if span.text() == "input")
}

fn hint(name: &str) -> &'static str {
    match name {
        "product" => "numbers could grow without bound",
        "http.send" | "net.lookup_ip_addr" | "opa.runtime" => {
            "policies do no I/O; what they need is in `input` or in data files"
        }
        "time.now_ns" => "policies read no clock; a decision must be repeatable",
        "rand.intn" | "uuid.rfc4122" => "policies are not random; a decision must be repeatable",
        "yaml.marshal" | "json.unmarshal" | "yaml.unmarshal" | "walk" => {
            "one call can take unbounded time; name the fields you mean"
        }
        "print" | "trace" => "there is nobody to print to; put a text into `log` of the decision",
        _ if name.starts_with("io.jwt") || name.starts_with("crypto.x509") => {
            "tokens are verified before a policy runs; use `input.principal`"
        }
        _ => "docs/policy-language.md lists the functions there are",
    }
}

#[cfg(test)]
mod tests {
    use super::names;

    #[test]
    fn each_function_is_listed_once() {
        let mut names: Vec<&str> = names().collect();
        let listed = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!((names.len(), names.contains(&"")), (listed, false));
        for (_, own) in super::OWN {
            for name in own.split_whitespace() {
                assert!(names.contains(&name), "{name}");
                assert!(!regorus::unstable::BUILTINS.contains_key(name), "{name}");
            }
        }
    }
}
