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

use super::exec::exec_error;
use super::value::{ElementType, Heap, List, Map, Value};
use super::{ExecError, print};

mod cases;
mod codec;
mod compare;
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
type Call = fn(&mut Heap<'_>, &Args<'_>) -> Result<Value, ExecError>;
/// The minimum and maximum number of arguments, and the names of functions that take so many.
type Signature = (usize, usize, &'static str);

/// Any number of arguments.
const VARIADIC: usize = usize::MAX;

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

static TABLE: LazyLock<FxHashMap<&'static str, (Signature, Call)>> = LazyLock::new(|| {
    let modules: [(&[Signature], Call); 14] = [
        (core::NAMES, core::call),
        (compare::NAMES, compare::call),
        (strings::NAMES, strings::call),
        (cases::NAMES, cases::call),
        (lists::NAMES, lists::call),
        (dicts::NAMES, dicts::call),
        (numbers::NAMES, numbers::call),
        (dates::NAMES, dates::call),
        (kinds::NAMES, kinds::call),
        (codec::NAMES, codec::call),
        (paths::NAMES, paths::call),
        (random::NAMES, random::call),
        (regexes::NAMES, regexes::call),
        (printf::NAMES, printf::call),
    ];
    let mut table = FxHashMap::default();
    for (signatures, call) in modules {
        for (least, most, names) in signatures {
            table.extend(names.split(' ').map(|name| (name, ((*least, *most, name), call))));
        }
    }
    table
});

/// Whether a function of that name exists, supported or not.
pub(super) fn is_known(name: &str) -> bool {
    matches!(name, "and" | "or") || TABLE.contains_key(name) || listed(UNSUPPORTED_FUNCTIONS, name).is_some()
}

pub(super) fn call(heap: &mut Heap<'_>, name: &str, values: &[Value]) -> Result<Value, ExecError> {
    heap.step()?;
    let Some(&((least, most, name), call)) = TABLE.get(name) else {
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
        return Err(exec_error(format!(
            "wrong number of args for {name}: want {wanted} got {observed}"
        )));
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
        exec_error(format!(
            "error calling {}: wrong type for value; expected {wanted}; got {}",
            self.name,
            value.type_name()
        ))
    }

    fn error(&self, text: impl std::fmt::Display) -> ExecError {
        exec_error(format!("error calling {}: {text}", self.name))
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

/// A value as a string: strings as they are, everything else as `%v`.
fn text_of(heap: &mut Heap<'_>, value: &Value) -> Result<Rc<str>, ExecError> {
    print::shown(heap, value)
}
