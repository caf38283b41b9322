//! Functions whose implementation in the engine differs from OPA's, or is not bounded.
//!
//! Each returns `None` where OPA reports an error.

use std::cell::RefCell;
use std::collections::HashSet;

use hmac::Hmac;
use md5::Md5;
use regex::Regex;
use regorus::Value;
use rustc_hash::FxHashMap;
use semver::Version;
use sha1::Sha1;
use sha2::{Sha256, Sha512};

use super::{encoding, json, net, paths, reachable, texts, uri, uuid};
use crate::usage::has_time;
use tollgate_core::glob::Pattern;
use tollgate_core::re2;

pub(super) type Function = fn(&[Value]) -> Option<Value>;

/// Longest list of `numbers.range`.
pub(crate) const MAX_RANGE: i64 = 10_000;
/// Longest text that a function makes whose growth the arguments do not bound.
pub(crate) const MAX_TEXT_BYTES: usize = 1024 * 1024;
/// Bytes that all searches for an expression in one text may read. Each can read all that is left of the text,
/// as for `a.*b|a`.
const MAX_SEARCHED_BYTES: usize = 16 * 1024 * 1024;
/// Bytes of a compiled regular expression. Each byte of a text can cost a step for each state that it has, as
/// for `(a|b)*a(a|b){500}c`.
pub(crate) const MAX_PROGRAM_BYTES: usize = 64 * 1024;
/// Most bits that `bits.lsh` shifts.
const MAX_SHIFT: i64 = 64;
/// Compiled patterns that a thread keeps. A policy has only literal ones.
const MAX_PATTERNS: usize = 256;

/// Compiled globs by pattern and delimiters; `None` for those that cannot be compiled.
type Globs = FxHashMap<(String, Vec<char>), Option<Pattern>>;

thread_local! {
    static REGEXES: RefCell<FxHashMap<String, Option<Regex>>> = RefCell::default();
    static GLOBS: RefCell<Globs> = RefCell::default();
}

pub(crate) fn find(name: &str) -> Option<Function> {
    Some(match name {
        "array.flatten" => texts::flatten,
        "base64.decode" => encoding::base64_decode,
        "base64.encode" => encoding::base64_encode,
        "base64.is_valid" => encoding::base64_is_valid,
        "base64url.decode" => encoding::base64url_decode,
        "base64url.encode" => encoding::base64url_encode,
        "base64url.encode_no_pad" => encoding::base64url_encode_no_pad,
        "crypto.hmac.equal" => encoding::hmac_equal,
        "crypto.hmac.md5" => encoding::mac::<Hmac<Md5>>,
        "crypto.hmac.sha1" => encoding::mac::<Hmac<Sha1>>,
        "crypto.hmac.sha256" => encoding::mac::<Hmac<Sha256>>,
        "crypto.hmac.sha512" => encoding::mac::<Hmac<Sha512>>,
        "crypto.md5" => encoding::digest::<Md5>,
        "crypto.sha1" => encoding::digest::<Sha1>,
        "crypto.sha256" => encoding::digest::<Sha256>,
        "glob.match" => glob_match,
        "graph.reachable" => reachable::reachable,
        "graph.reachable_paths" => reachable::reachable_paths,
        "hex.decode" => encoding::hex_decode,
        "hex.encode" => encoding::hex_encode,
        "json.filter" => paths::filter,
        "json.is_valid" => json::is_valid,
        "json.marshal" => json::marshal,
        "json.marshal_with_options" => json::marshal_with_options,
        "json.remove" => paths::remove,
        "net.cidr_contains" => net::contains,
        "net.cidr_contains_matches" => net::contains_matches,
        "net.cidr_expand" => net::expand,
        "net.cidr_intersects" => net::intersects,
        "net.cidr_is_valid" => net::is_valid,
        "net.cidr_merge" => net::merge,
        "numbers.range" => numbers_range,
        "numbers.range_step" => numbers_range_step,
        "regex.find_all_string_submatch_n" => texts::find_all_submatches,
        "regex.find_n" => regex_find_n,
        "regex.is_valid" => regex_is_valid,
        "regex.match" => regex_match,
        "regex.replace" => texts::regex_replace,
        "regex.split" => regex_split,
        "semver.compare" => semver_compare,
        "semver.is_valid" => semver_is_valid,
        "object.get" => object_get,
        "object.subset" => object_subset,
        "split" => texts::split,
        "sprintf" => super::format::sprintf,
        "strings.any_prefix_match" => any_prefix_match,
        "strings.any_suffix_match" => any_suffix_match,
        "strings.count" => strings_count,
        "strings.replace_n" => texts::replace_n,
        "strings.split_n" => texts::split_n,
        "sum" => super::numbers::sum,
        "to_number" => super::numbers::to_number,
        "units.parse" => super::units::parse,
        "units.parse_bytes" => super::units::parse_bytes,
        "uri.is_valid" => uri::is_valid,
        "uri.parse" => uri::parse,
        "urlquery.decode" => encoding::urlquery_decode,
        "urlquery.decode_object" => encoding::urlquery_decode_object,
        "urlquery.encode" => encoding::urlquery_encode,
        "urlquery.encode_object" => encoding::urlquery_encode_object,
        "uuid.parse" => uuid::parse,
        _ => return None,
    })
}

/// Whether OPA refuses arguments that the engine's own function takes, or a result would be too large.
pub(crate) fn refuses(name: &str, arguments: &[Value]) -> bool {
    match (name, arguments) {
        // The engine orders a set before an object.
        ("sort" | "max" | "min", [items]) => holds_set(items) && holds_object(items),
        ("array.slice" | "substring", [_, first, last]) => integer(first).is_none() || integer(last).is_none(),
        ("indexof" | "indexof_n", [_, part]) => text(part) == Some(""),
        // OPA maps one letter to one, and takes these fractions apart as if they were positive.
        ("upper", [value]) => text(value).is_some_and(|text| text.chars().any(|one| one.to_uppercase().len() > 1)),
        ("lower", [value]) => text(value).is_some_and(|text| text.chars().any(|one| one.to_lowercase().len() > 1)),
        ("ceil" | "floor" | "format_int", [number, ..]) if is_negative_fraction(number) => true,
        ("abs" | "ceil" | "floor" | "round" | "format_int", [number, ..]) => super::numbers::is_beyond_mantissa(number),
        ("time.parse_rfc3339_ns", [time]) => !text(time).is_some_and(is_rfc3339),
        ("bits.lsh", [_, shift]) => !integer(shift).is_some_and(|shift| (0..=MAX_SHIFT).contains(&shift)),
        _ => false,
    }
}

/// Whether a number is between -1 and 0.
fn is_negative_fraction(value: &Value) -> bool {
    matches!(value, Value::Number(number) if number.as_f64().is_some_and(|number| -1.0 < number && number < 0.0))
}

/// Whether a function has no value for some arguments. Any other that has none has failed.
pub(crate) fn can_be_undefined(name: &str) -> bool {
    matches!(name, "max" | "min" | "uuid.parse")
}

pub(crate) fn holds_set(value: &Value) -> bool {
    match value {
        Value::Set(_) => true,
        other => parts_hold(other, holds_set),
    }
}

pub(crate) fn holds_object(value: &Value) -> bool {
    match value {
        Value::Object(_) => true,
        other => parts_hold(other, holds_object),
    }
}

fn parts_hold(value: &Value, holds: fn(&Value) -> bool) -> bool {
    match value {
        Value::Array(items) => items.iter().any(holds),
        Value::Set(items) => items.iter().any(holds),
        Value::Object(entries) => entries.iter().any(|(key, value)| holds(key) || holds(value)),
        _ => false,
    }
}

/// The form that Go reads: `T` and `Z` are large, and no second is the 60th.
fn is_rfc3339(text: &str) -> bool {
    let form = |text: &str, form: &str| {
        text.len() == form.len()
            && text.bytes().zip(form.bytes()).all(|(byte, form)| match form {
                b'0' => byte.is_ascii_digit(),
                form => byte == form,
            })
    };
    let Some((time, rest)) = text.split_at_checked(19) else {
        return false;
    };
    let zone = match rest.strip_prefix('.') {
        Some(rest) => {
            let zone = rest.trim_start_matches(|letter: char| letter.is_ascii_digit());
            if zone.len() == rest.len() {
                return false;
            }
            zone
        }
        None => rest,
    };
    form(time, "0000-00-00T00:00:00")
        && !time.ends_with("60")
        && (zone == "Z" || form(zone, "+00:00") || form(zone, "-00:00"))
}

pub(super) fn text(value: &Value) -> Option<&str> {
    match value {
        Value::String(text) => Some(text),
        _ => None,
    }
}

pub(super) fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::Number(_) => value.as_i64().ok(),
        _ => None,
    }
}

/// The texts of a list or set.
fn texts_of(value: &Value) -> Option<Vec<&str>> {
    match value {
        Value::Array(items) => items.iter().map(text).collect(),
        Value::Set(items) => items.iter().map(text).collect(),
        _ => None,
    }
}

fn glob_match(arguments: &[Value]) -> Option<Value> {
    let [pattern, delimiters, subject] = arguments else {
        return None;
    };
    let (pattern, subject) = (text(pattern)?, text(subject)?);
    let separators = match delimiters {
        Value::Null => Vec::new(),
        Value::Array(items) if items.is_empty() => vec!['.'],
        Value::Array(items) => {
            let single = |item: &Value| {
                let mut letters = text(item)?.chars();
                letters.next().filter(|_| letters.next().is_none())
            };
            items.iter().map(single).collect::<Option<_>>()?
        }
        _ => return None,
    };
    GLOBS.with_borrow_mut(|globs| {
        if globs.len() >= MAX_PATTERNS {
            globs.clear();
        }
        let compiled = globs.entry((pattern.to_owned(), separators));
        let compile = |(pattern, separators): &(String, Vec<char>)| Pattern::compile_exact(pattern, separators).ok();
        let compiled = compiled.or_insert_with_key(compile).as_ref()?;
        Some(compiled.matches(subject).into())
    })
}

pub(super) fn with_regex<T>(pattern: &str, apply: impl FnOnce(&Regex) -> T) -> Option<T> {
    REGEXES.with_borrow_mut(|regexes| {
        if regexes.len() >= MAX_PATTERNS {
            regexes.clear();
        }
        let compiled = regexes.entry(pattern.to_owned());
        let compiled = compiled.or_insert_with_key(|pattern| re2::compile_within(pattern, MAX_PROGRAM_BYTES).ok());
        compiled.as_ref().map(apply)
    })
}

/// Matches in a text of that many bytes; `None` once there were too many for its length, or the decision has
/// no time left.
pub(super) fn bounded<M>(
    mut matches: impl Iterator<Item = M>,
    bytes: usize,
    end: impl Fn(&M) -> usize,
) -> impl Iterator<Item = Option<M>> {
    let (mut left, mut at) = (MAX_SEARCHED_BYTES, 0);
    std::iter::from_fn(move || {
        let rest = left.checked_sub(bytes.saturating_sub(at)).filter(|_| has_time());
        let Some(rest) = rest else {
            return Some(None);
        };
        left = rest;
        let found = matches.next()?;
        at = end(&found);
        Some(Some(found))
    })
}

fn regex_match(arguments: &[Value]) -> Option<Value> {
    let [pattern, subject] = arguments else { return None };
    let subject = text(subject)?;
    with_regex(text(pattern)?, |regex| regex.is_match(subject).into())
}

fn regex_is_valid(arguments: &[Value]) -> Option<Value> {
    let [pattern] = arguments else { return None };
    let is_valid = text(pattern).is_some_and(|pattern| with_regex(pattern, |_| ()).is_some());
    Some(is_valid.into())
}

fn regex_find_n(arguments: &[Value]) -> Option<Value> {
    let [pattern, subject, most] = arguments else {
        return None;
    };
    let (subject, most) = (text(subject)?, integer(most)?);
    // A negative number means all.
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let find = |regex: &Regex| {
        let found = bounded(regex.find_iter(subject).take(most), subject.len(), regex::Match::end);
        let texts = found.map(|found| found.map(|found| Value::from(found.as_str())));
        texts.collect::<Option<Vec<_>>>()
    };
    with_regex(text(pattern)?, find)?.map(Value::from)
}

/// Go's `Regexp.Split`.
fn regex_split(arguments: &[Value]) -> Option<Value> {
    let [pattern, subject] = arguments else { return None };
    let subject = text(subject)?;
    let split = |regex: &Regex| {
        // As `Regexp.Split` of Go.
        if subject.is_empty() && !regex.as_str().is_empty() {
            return Some(Value::from(vec![Value::from("")]));
        }
        let mut pieces = Vec::new();
        let (mut start, mut end) = (0, 0);
        for found in bounded(regex.find_iter(subject), subject.len(), regex::Match::end) {
            let found = found?;
            end = found.start();
            if found.end() != 0 {
                pieces.push(Value::from(subject.get(start..end)?));
            }
            start = found.end();
        }
        if end != subject.len() {
            pieces.push(Value::from(subject.get(start..)?));
        }
        Some(Value::from(pieces))
    };
    with_regex(text(pattern)?, split)?
}

fn strings_count(arguments: &[Value]) -> Option<Value> {
    let [subject, part] = arguments else { return None };
    let (subject, part) = (text(subject)?, text(part)?);
    Some(Value::from(subject.matches(part).count()))
}

fn numbers_range(arguments: &[Value]) -> Option<Value> {
    let [first, last] = arguments else { return None };
    range(integer(first)?, integer(last)?, 1)
}

fn numbers_range_step(arguments: &[Value]) -> Option<Value> {
    let [first, last, step] = arguments else { return None };
    range(integer(first)?, integer(last)?, integer(step)?)
}

/// `None` also for a list that would be too long.
fn range(first: i64, last: i64, step: i64) -> Option<Value> {
    if step <= 0 || first.checked_sub(last)?.checked_abs()?.checked_div(step)? >= MAX_RANGE {
        return None;
    }
    let step = if first <= last { step } else { -step };
    let next = |at: &i64| at.checked_add(step);
    let numbers = std::iter::successors(Some(first), next);
    let numbers = numbers.take_while(|at| if step > 0 { *at <= last } else { *at >= last });
    Some(numbers.map(Value::from).collect::<Vec<_>>().into())
}

/// Where OPA's parser accepts more or less than semantic versioning does, it is followed.
fn version(text: &str) -> Option<Version> {
    let version = Version::parse(text.strip_prefix('v').unwrap_or(text)).ok()?;
    let most = u64::try_from(i64::MAX).ok()?;
    let fits = version.major <= most && version.minor <= most && version.patch <= most;
    fits.then_some(version)
}

fn semver_compare(arguments: &[Value]) -> Option<Value> {
    let [left, right] = arguments else { return None };
    let (left, right) = (version(text(left)?)?, version(text(right)?)?);
    // OPA compares longer numbers wrongly.
    let is_short = |version: &Version| version.pre.split('.').all(|part| part.len() <= 18 || !is_number(part));
    let order = (is_short(&left) && is_short(&right)).then(|| left.cmp_precedence(&right))?;
    Some(Value::from(order as i64))
}

fn is_number(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

fn semver_is_valid(arguments: &[Value]) -> Option<Value> {
    let [text_] = arguments else { return None };
    Some(text(text_).is_some_and(|text| version(text).is_some()).into())
}

fn object_get(arguments: &[Value]) -> Option<Value> {
    let [object @ Value::Object(fields), key, default] = arguments else {
        return None;
    };
    let found = match key {
        // A list is a path.
        Value::Array(path) => path.iter().try_fold(object, |at, key| match at {
            Value::Object(fields) => fields.get(key),
            Value::Array(items) => items.get(usize::try_from(integer(key)?).ok()?),
            Value::Set(items) => items.contains(key).then_some(key),
            _ => None,
        }),
        key => fields.get(key),
    };
    Some(found.unwrap_or(default).clone())
}

fn object_subset(arguments: &[Value]) -> Option<Value> {
    let [whole, part] = arguments else { return None };
    if let (Value::Array(items), Value::Set(part)) = (whole, part) {
        // OPA counts an item as often as it is there, and nothing is a part of the empty array.
        let found = items.iter().filter(|item| part.contains(item)).count();
        return Some((!items.is_empty() && found >= part.len()).into());
    }
    subset(whole, part).map(Value::from)
}

/// Whether a value contains another one of its type; `None` for other types.
fn subset(whole: &Value, part: &Value) -> Option<bool> {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => Some(part.iter().all(|(key, part)| {
            let whole = whole.get(key);
            whole.is_some_and(|whole| whole == part || subset(whole, part) == Some(true))
        })),
        (Value::Set(whole), Value::Set(part)) => Some(part.iter().all(|item| whole.contains(item))),
        (Value::Array(whole), Value::Array(part)) => {
            let part: Vec<_> = part.iter().collect();
            Some(has_run(whole.iter(), &part))
        }
        _ => None,
    }
}

/// Whether the items of `part` follow one another in `whole`. Takes time in proportion to both lengths, by the
/// search of Knuth, Morris and Pratt.
fn has_run<'v>(mut whole: impl Iterator<Item = &'v Value>, part: &[&Value]) -> bool {
    // After an item: how many of the last ones are the beginning of `part`, if `matched` were before it.
    let next = |borders: &[usize], mut matched: usize, item: &Value| loop {
        if part.get(matched).is_some_and(|expected| *expected == item) {
            return matched + 1;
        }
        let Some(last) = matched.checked_sub(1) else { return 0 };
        matched = borders.get(last).copied().unwrap_or_default();
    };
    let mut borders = vec![0];
    for item in part.iter().skip(1) {
        let matched = borders.last().copied().unwrap_or_default();
        borders.push(next(&borders, matched, item));
    }
    let mut matched = 0;
    part.is_empty()
        || whole.any(|item| {
            matched = next(&borders, matched, item);
            matched == part.len()
        })
}

fn any_prefix_match(arguments: &[Value]) -> Option<Value> {
    any_affix(arguments, |text, bytes| text.get(..bytes))
}

fn any_suffix_match(arguments: &[Value]) -> Option<Value> {
    any_affix(arguments, |text, bytes| text.get(text.len().checked_sub(bytes)?..))
}

/// Whether a text begins or ends with one of others. `part` is its part of that many bytes.
fn any_affix(arguments: &[Value], part: fn(&str, usize) -> Option<&str>) -> Option<Value> {
    let [searched, affixes] = arguments else { return None };
    let list = |value| texts_of(value).or_else(|| Some(vec![text(value)?]));
    let (searched, affixes) = (list(searched)?, list(affixes)?);
    let lengths: HashSet<usize> = affixes.iter().map(|affix| affix.len()).collect();
    let affixes: HashSet<&str> = affixes.into_iter().collect();
    let matches = |text: &&str| {
        let mut parts = lengths.iter().filter_map(|bytes| part(text, *bytes));
        parts.any(|part| affixes.contains(part))
    };
    Some(searched.iter().any(matches).into())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use regorus::Value;

    use super::{bounded, has_run};
    use crate::usage::{has_time, start};

    #[test]
    fn a_run_of_items_is_found_where_a_window_has_it() {
        // Every list of at most six items of two kinds, in every one of at most nine.
        let lists = |most: u32| {
            let of =
                |length: u32| (0..1_u32 << length).map(move |bits| (0..length).map(move |at| bits >> at & 1).collect());
            (0..=most).flat_map(of).collect::<Vec<Vec<u32>>>()
        };
        let values = |list: &Vec<u32>| {
            list.iter()
                .map(|item| Value::from(u64::from(*item)))
                .collect::<Vec<_>>()
        };
        let wholes: Vec<_> = lists(9).iter().map(values).collect();
        for part in lists(6).iter().map(values) {
            let parts: Vec<_> = part.iter().collect();
            for whole in &wholes {
                let expected = part.is_empty() || whole.windows(part.len()).any(|window| window == part);
                assert_eq!(has_run(whole.iter(), &parts), expected, "{part:?} in {whole:?}");
            }
        }
    }

    #[test]
    fn a_search_ends_with_the_time_of_its_decision() {
        let search = || bounded(["a", "b"].into_iter(), 2, |_| 1).collect::<Option<Vec<_>>>();
        start(Duration::from_secs(60));
        assert_eq!(search(), Some(vec!["a", "b"]));
        start(Duration::ZERO);
        while has_time() {}
        assert_eq!(search(), None);
    }
}
