//! The functions of Go templates.
//!
//! Invariant: arguments of a wrong kind are an error, never a panic.
//!
//! Security: no function reads the environment, a file or a name server.
//!
//! Source: the functions of `text/template`; those of the library `sprig` 3 as Argo CD offers
//! them: without `env`, `expandenv` and `getHostByName`, with `normalize`, `slugify`, `toYaml`,
//! `fromYaml` and `fromYamlArray`.

use std::rc::Rc;
use std::sync::LazyLock;

use rustc_hash::FxHashMap;

use super::ExecError;
use super::exec::exec_error;
use super::value::{ElementType, Heap, List, Map, Value};

mod cases;
mod codec;
mod core;
mod dates;
mod dicts;
mod json;
mod kinds;
mod lists;
mod numbers;
mod paths;
pub(super) mod printf;
mod random;
mod regexes;
mod strings;
mod write_yaml;

/// The functions of a module: it finds the one to call by [`Args::name`].
type Call = fn(&Heap<'_>, &Args<'_>) -> Result<Value, ExecError>;
/// The module of functions, the minimum and maximum number of their arguments, and their names.
type Row = (Call, usize, usize, &'static str);

/// Any number of arguments.
const VARIADIC: usize = usize::MAX;

const FUNCTIONS: &[Row] = &[
    (core::call, 0, VARIADIC, "print println"),
    (core::call, 1, 1, "len not"),
    (core::call, 1, VARIADIC, "call eq html index js urlquery"),
    (core::call, 2, 2, "ge gt le lt ne"),
    (strings::call, 0, VARIADIC, "cat quote squote"),
    (strings::call, 1, 1, "lower nospace toString trim upper"),
    (strings::call, 2, 2, "abbrev contains hasPrefix hasSuffix indent join"),
    (strings::call, 2, 2, "nindent repeat split splitList trimAll trimPrefix"),
    (strings::call, 2, 2, "trimSuffix trimall trunc wrap"),
    (strings::call, 3, 3, "abbrevboth plural replace splitn substr wrapWith"),
    (cases::call, 0, VARIADIC, "slugify"),
    (cases::call, 1, 1, "camelcase initials kebabcase normalize snakecase"),
    (cases::call, 1, 1, "swapcase title untitle"),
    (lists::call, 0, VARIADIC, "concat list tuple"),
    (lists::call, 1, 1, "compact first initial last mustCompact mustFirst"),
    (lists::call, 1, 1, "mustInitial mustLast mustRest mustReverse mustUniq"),
    (lists::call, 1, 1, "rest reverse sortAlpha toStrings uniq"),
    (lists::call, 1, VARIADIC, "mustSlice mustWithout slice without"),
    (lists::call, 2, 2, "append chunk has mustAppend mustChunk mustHas"),
    (lists::call, 2, 2, "mustPrepend mustPush prepend push"),
    (dicts::call, 0, VARIADIC, "dict keys"),
    (dicts::call, 1, 1, "values"),
    (dicts::call, 1, VARIADIC, "merge mergeOverwrite mustMerge"),
    (dicts::call, 1, VARIADIC, "mustMergeOverwrite omit pick pluck"),
    (dicts::call, 2, 2, "get hasKey unset"),
    (dicts::call, 3, 3, "set"),
    (dicts::call, 3, VARIADIC, "dig"),
    (numbers::call, 0, VARIADIC, "add addf seq"),
    (numbers::call, 1, 1, "add1 add1f atoi ceil float64 floor int int64"),
    (numbers::call, 1, 1, "toDecimal until"),
    (numbers::call, 1, VARIADIC, "biggest divf max maxf min minf mul mulf"),
    (numbers::call, 1, VARIADIC, "subf"),
    (numbers::call, 2, 2, "div mod sub"),
    (numbers::call, 2, VARIADIC, "round"),
    (numbers::call, 3, 3, "untilStep"),
    (dates::call, 0, 0, "now"),
    (dates::call, 1, 1, "ago duration durationRound htmlDate unixEpoch"),
    (dates::call, 2, 2, "date dateModify date_modify htmlDateInZone"),
    (dates::call, 2, 2, "mustDateModify mustToDate must_date_modify toDate"),
    (dates::call, 3, 3, "dateInZone date_in_zone"),
    (kinds::call, 0, 0, "hello"),
    (kinds::call, 0, VARIADIC, "all any coalesce"),
    (kinds::call, 1, 1, "deepCopy empty fail kindOf mustDeepCopy typeOf"),
    (kinds::call, 1, VARIADIC, "default"),
    (kinds::call, 2, 2, "deepEqual kindIs typeIs typeIsLike"),
    (kinds::call, 3, 3, "ternary"),
    (codec::call, 1, 1, "adler32sum b32dec b32enc b64dec b64enc fromJson"),
    (codec::call, 1, 1, "fromYaml fromYamlArray mustFromJson mustToJson"),
    (codec::call, 1, 1, "mustToPrettyJson mustToRawJson sha1sum sha256sum"),
    (codec::call, 1, 1, "sha512sum toJson toPrettyJson toRawJson toYaml"),
    (paths::call, 1, 1, "base clean dir ext isAbs osBase osClean osDir osExt"),
    (paths::call, 1, 1, "osIsAbs urlJoin urlParse"),
    (random::call, 0, 0, "uuidv4"),
    (random::call, 1, 1, "randAlpha randAlphaNum randAscii randBytes"),
    (random::call, 1, 1, "randNumeric shuffle"),
    (random::call, 2, 2, "randInt"),
    (regexes::call, 1, 1, "regexQuoteMeta semver"),
    (regexes::call, 2, 2, "mustRegexFind mustRegexMatch regexFind regexMatch"),
    (regexes::call, 2, 2, "semverCompare"),
    (regexes::call, 3, 3, "mustRegexFindAll mustRegexReplaceAll"),
    (regexes::call, 3, 3, "mustRegexReplaceAllLiteral mustRegexSplit"),
    (regexes::call, 3, 3, "regexFindAll regexReplaceAll"),
    (regexes::call, 3, 3, "regexReplaceAllLiteral regexSplit"),
    (printf::call, 1, VARIADIC, "printf"),
];

/// Functions that exist but are not supported: they make keys, certificates or slow hashes, which
/// do not belong in an ApplicationSet that anyone may read.
pub(super) const UNSUPPORTED_FUNCTIONS: &str = "\
    bcrypt buildCustomCert decryptAES derivePassword encryptAES genCA genCAWithKey genPrivateKey \
    genSelfSignedCert genSelfSignedCertWithKey genSignedCert genSignedCertWithKey htpasswd";

/// Functions whose results a differential test compares with Argo CD's (`tests/parts/applicationsets`),
/// or which refuse input that Argo CD could treat differently.
pub(super) const PORTABLE_FUNCTIONS: &str = "\
    add add1 adler32sum all and any append atoi b64enc base biggest cat clean coalesce compact concat \
    contains default dict dig dir div empty eq ext fail first ge get gt has hasKey hasPrefix hasSuffix \
    indent index initial int int64 isAbs join last le len list lower lt max min mod mul ne nindent \
    normalize not omit or pick pluck plural prepend print printf push quote repeat replace rest reverse \
    seq sha1sum sha256sum sha512sum slugify sortAlpha split splitList splitn squote sub substr swapcase \
    ternary title toJson toString toStrings toYaml trim trimAll trimPrefix trimSuffix trimall trunc \
    tuple uniq until untilStep untitle upper without";

/// Functions that change a map passed to them.
pub(super) const MUTATING_FUNCTIONS: &str = "merge mergeOverwrite mustMerge mustMergeOverwrite set unset";

/// The name as `list` has it, if it does.
pub(super) fn listed(list: &'static str, name: &str) -> Option<&'static str> {
    list.split(' ').find(|known| *known == name)
}

static TABLE: LazyLock<FxHashMap<&'static str, &'static Row>> = LazyLock::new(|| {
    let named = |row: &'static Row| row.3.split(' ').map(move |name| (name, row));
    FUNCTIONS.iter().flat_map(named).collect()
});

/// Whether a function of that name exists, supported or not.
pub(super) fn is_known(name: &str) -> bool {
    matches!(name, "and" | "or") || TABLE.contains_key(name) || listed(UNSUPPORTED_FUNCTIONS, name).is_some()
}

pub(super) fn call(heap: &Heap<'_>, name: &str, values: &[Value]) -> Result<Value, ExecError> {
    heap.step()?;
    let Some((&name, &&(call, least, most, _))) = TABLE.get_key_value(name) else {
        return Err(match listed(UNSUPPORTED_FUNCTIONS, name) {
            Some(name) => ExecError::Limit(format!(
                "function `{name}` is not offered: it makes keys, certificates or slow hashes"
            )),
            None => exec_error(format!("function `{name}` is not defined")),
        });
    };
    let observed = values.len();
    if observed < least || observed > most {
        let wanted = match most {
            VARIADIC => format!("at least {least}"),
            most if least == most => least.to_string(),
            most => format!("{least} to {most}"),
        };
        let text = format!("wrong number of args for {name}: want {wanted} got {observed}");
        return Err(exec_error(text));
    }
    call(heap, &Args { name, values })
}

struct Args<'v> {
    name: &'static str,
    values: &'v [Value],
}

impl Args<'_> {
    /// The error of a name that no function of its module has.
    fn unknown(&self) -> ExecError {
        exec_error(format!("function `{}` is not implemented", self.name))
    }

    fn wrong(&self, wanted: &str, value: &Value) -> ExecError {
        let observed = value.type_name();
        self.error(format!("wrong type for value; expected {wanted}; got {observed}"))
    }

    fn error(&self, text: impl std::fmt::Display) -> ExecError {
        exec_error(format!("error calling {}: {text}", self.name))
    }

    fn out_of_range(&self) -> ExecError {
        self.error("slice bounds out of range")
    }

    /// The argument at `index`; nil if there is none.
    fn arg(&self, index: usize) -> &Value {
        self.values.get(index).unwrap_or(&Value::Nil)
    }

    fn rest(&self, index: usize) -> &[Value] {
        self.values.get(index..).unwrap_or_default()
    }

    fn text(&self, index: usize) -> Result<&Rc<str>, ExecError> {
        match self.arg(index) {
            Value::Text(text) => Ok(text),
            other => Err(self.wrong("string", other)),
        }
    }

    fn int(&self, index: usize) -> Result<i64, ExecError> {
        match self.arg(index) {
            Value::Int(number) => Ok(*number),
            other => Err(self.wrong("int", other)),
        }
    }

    fn bool(&self, index: usize) -> Result<bool, ExecError> {
        match self.arg(index) {
            Value::Bool(yes) => Ok(*yes),
            other => Err(self.wrong("bool", other)),
        }
    }

    fn map(&self, index: usize) -> Result<&Map, ExecError> {
        match self.arg(index) {
            Value::Map(map) if map.element_type == ElementType::Any => Ok(map),
            // In Go a missing value is an empty map here, and null is an error.
            other if other.is_nil() => Err(ExecError::Divergent(format!(
                "nothing where `{}` takes a map",
                self.name
            ))),
            other => Err(self.wrong("map[string]interface {}", other)),
        }
    }

    fn list(&self, index: usize) -> Result<&Rc<List>, ExecError> {
        match self.arg(index) {
            Value::List(list) => Ok(list),
            other => Err(self.error(format!("cannot do this on type {}", other.kind_name()))),
        }
    }

    /// A string whose letters have the same case, class and forms in Argo CD.
    ///
    /// SECURITY: Unicode tables differ between versions, and some letters become several when
    /// converted.
    fn ascii(&self, heap: &Heap<'_>, index: usize) -> Result<&Rc<str>, ExecError> {
        let text = self.text(index)?;
        heap.refuse_divergent(!text.is_ascii(), || {
            format!("`{}` of other letters than ASCII", self.name)
        })?;
        Ok(text)
    }

    /// A length or a count that must not be negative.
    fn count(&self, index: usize) -> Result<usize, ExecError> {
        let number = self.int(index)?;
        usize::try_from(number).map_err(|_| self.error(format!("negative count {number}")))
    }
}
