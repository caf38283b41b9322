//! The functions that an expression can call, as the environments for compiling and for evaluating.
//!
//! Security: no function reads a clock, produces randomness or repeats a text. Patterns are
//! compiled with the expression, never during a request.

use std::any::Any;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use cel::common::ast::{CallExpr, Expr, IdedExpr, LiteralValue};
use cel::common::types::{CelBool, CelString, DYN_TYPE, STRING_TYPE, Type};
use cel::common::value::{CowVal, StaticVal, Val};
use cel::parser::{Macro, MacroExprHelper};
use cel::{Env, ExecutionError, ParseError, extensions};
use regex::{Regex, RegexBuilder};

use super::strict;
use tollgate_core::re2;

const MAX_PATTERN_BYTES: usize = 512;
const MAX_PATTERNS: usize = 16;
/// Maximum size of a compiled pattern, in bytes: `(a{1000}){1000}` is refused.
const MAX_PATTERN_PROGRAM_BYTES: usize = 128 * 1024;
/// Prefix of the hidden variables that hold compiled patterns. A name that an operator writes
/// cannot contain `@`.
pub(super) const PATTERN_PREFIX: &str = "@pattern";
const MATCHES: &str = "@matches";
const TIMESTAMP: &str = "timestamp";
/// Passes a value on, except a text that is no time in RFC 3339.
const TIME_TEXT: &str = "@time_text";

const FUNCTIONS: &str = "!_ -_ @in @matches @not_strictly_false @time_text _!=_ _%_ _&&_ _*_ _+_ _-_ _/_ _<=_ _<_ _==_ _>=_ _>_ _?._ \
    _?_:_ _[?_] _[_] _||_ bool contains double duration dyn endsWith getDate getDayOfMonth getDayOfWeek \
    getDayOfYear getFullYear getHours getMilliseconds getMinutes getMonth getSeconds hasValue indexOf \
    int join lastIndexOf lowerAscii orValue size split startsWith string substring timestamp trim type \
    uint upperAscii value";

/// Names of types, for `type(x) == string`.
const TYPES: &str = "bool bytes double int list map null_type string type uint";

pub(super) fn is_function(name: &str) -> bool {
    FUNCTIONS.split(' ').any(|known| known == name)
}

pub(super) fn is_type(name: &str) -> bool {
    TYPES.split(' ').any(|known| known == name)
}

/// A pattern compiled with its expression.
#[derive(Debug)]
pub(super) struct Pattern {
    /// The hidden variable that holds it.
    pub(super) name: String,
    pub(super) value: PatternValue,
}

#[derive(Clone, Debug)]
pub(super) struct PatternValue(Arc<Regex>);

static PATTERN_TYPE: Type = Type::new_unspecified_type("@pattern");

impl Val for PatternValue {
    fn get_type(&self) -> &Type {
        <Self as Val>::cel_type()
    }
    fn cel_type() -> &'static Type {
        &PATTERN_TYPE
    }
    fn equals(&self, _other: &dyn Val) -> bool {
        false
    }
    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v> {
        Box::new(self.clone())
    }
    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}
impl StaticVal for PatternValue {}

/// Collects the patterns of one expression while it is parsed.
#[derive(Clone, Default)]
pub(super) struct PatternCollector(Arc<Mutex<Vec<Pattern>>>);

impl PatternCollector {
    pub(super) fn take(&self) -> Vec<Pattern> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn add(&self, source: &str) -> Result<String, String> {
        let mut found = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if found.len() >= MAX_PATTERNS {
            return Err(format!("more than {MAX_PATTERNS} patterns in one expression"));
        }
        if source.len() > MAX_PATTERN_BYTES {
            return Err(format!(
                "the pattern has {} bytes, {MAX_PATTERN_BYTES} are allowed",
                source.len()
            ));
        }
        let broken = || "the pattern is no regular expression, or too large when compiled".to_owned();
        // SECURITY: the crate's `\w`, `\d`, `\s` and `\b` would match more than those of CEL.
        let translated = re2::translate(source).map_err(|_| broken())?;
        let compiled = RegexBuilder::new(&translated)
            .size_limit(MAX_PATTERN_PROGRAM_BYTES)
            .dfa_size_limit(MAX_PATTERN_PROGRAM_BYTES)
            .nest_limit(16)
            .build()
            .map_err(|_| broken())?;
        let name = format!("{PATTERN_PREFIX}{}", found.len());
        found.push(Pattern {
            name: name.clone(),
            value: PatternValue(Arc::new(compiled)),
        });
        Ok(name)
    }
}

/// The environment for parsing one expression, and the collector of its patterns.
///
/// `matches` is a macro here: its pattern must be a literal and is compiled now, whereas the crate's
/// own function compiles it at each evaluation. `timestamp` is one because the crate's function also
/// reads what is almost a time, such as `2026-11-29 15:30:00Z`.
pub(super) fn compile_env() -> (Env, PatternCollector) {
    let collector = PatternCollector::default();
    let mut env = Env::stdlib();
    let (member, global) = (collector.clone(), collector.clone());
    let macros = [
        Macro::receiver("matches", 1, move |helper, target, args| {
            rewrite(helper, &member, target.take(), args.pop())
        }),
        Macro::global("matches", 2, move |helper, _, args| {
            let pattern = args.pop();
            rewrite(helper, &global, args.pop(), pattern)
        }),
        Macro::global(TIMESTAMP, 1, |helper, _, args| {
            let checked = call(helper, TIME_TEXT, std::mem::take(args));
            Ok(Some(call(helper, TIMESTAMP, vec![checked])))
        }),
    ];
    for each in macros {
        // This fails only for a duplicate, and the standard macros have no `matches`. Without the
        // macro the allow-list would refuse the call.
        drop(env.add_macro(each));
    }
    (env, collector)
}

fn rewrite(
    helper: &mut MacroExprHelper<'_>,
    collector: &PatternCollector,
    text: Option<IdedExpr>,
    pattern: Option<IdedExpr>,
) -> Result<Option<IdedExpr>, ParseError> {
    let Some((text, pattern)) = text.zip(pattern) else {
        return Ok(None);
    };
    let Expr::Literal(LiteralValue::String(source)) = &pattern.expr else {
        return Err(helper.new_error(pattern.id, "the pattern of `matches` must be a literal text"));
    };
    let name = collector
        .add(source.inner())
        .map_err(|reason| helper.new_error(pattern.id, reason))?;
    let compiled = helper.next_expr(Expr::Ident(name));
    Ok(Some(call(helper, MATCHES, vec![text, compiled])))
}

fn call(helper: &mut MacroExprHelper<'_>, function: &str, args: Vec<IdedExpr>) -> IdedExpr {
    helper.next_expr(Expr::Call(CallExpr {
        func_name: function.to_owned(),
        target: None,
        args,
    }))
}

pub(super) fn eval_env() -> Arc<Env> {
    static ENV: LazyLock<Arc<Env>> = LazyLock::new(|| {
        let mut env = Env::stdlib();
        // Each of these fails only for a duplicate name. A missing function is an error at
        // evaluation, hence a denial.
        drop(env.add_extension(extensions::strings));
        drop(env.add_overload(
            MATCHES,
            "tollgate_matches",
            vec![STRING_TYPE, PATTERN_TYPE.to_owned()],
            matches,
        ));
        let two = || vec![DYN_TYPE, DYN_TYPE];
        drop(env.add_overload(strict::ADD, "tollgate_add", two(), strict::add));
        drop(env.add_overload(strict::INDEXED, "tollgate_indexed", two(), strict::indexed));
        drop(env.add_overload(TIME_TEXT, "tollgate_time_text", vec![DYN_TYPE], time_text));
        Arc::new(env)
    });
    ENV.clone()
}

#[expect(clippy::needless_pass_by_value, reason = "the crate's signature of an overload")]
fn matches<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let [text, pattern] = args.as_slice() else {
        return Err(ExecutionError::missing_argument_or_target());
    };
    let (Some(text), Some(pattern)) = (
        text.downcast_ref::<CelString<'_>>(),
        pattern.downcast_ref::<PatternValue>(),
    ) else {
        return Err(ExecutionError::function_error("matches", "wrong type"));
    };
    Ok(CowVal::owned(CelBool::from(pattern.0.is_match(text.inner()))))
}

fn time_text<'b, 'v>(mut args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let value = args.pop().ok_or_else(ExecutionError::missing_argument_or_target)?;
    match value.downcast_ref::<CelString<'_>>() {
        Some(text) if !is_time(text.inner()) => Err(ExecutionError::function_error(TIMESTAMP, "no RFC 3339")),
        _ => Ok(value),
    }
}

/// Whether a text has the form of a time in RFC 3339, as Go reads it: `2026-11-29T15:30:00.5Z`. There is no
/// leap second.
fn is_time(text: &str) -> bool {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let Some((date_time, rest)) = text.split_at_checked(19) else {
        return false;
    };
    let form = "dddd-dd-ddTdd:dd:dd";
    let has_form = date_time.bytes().zip(form.bytes()).all(|(byte, form)| match form {
        b'd' => byte.is_ascii_digit(),
        form => byte == form,
    });
    let rest = match rest.strip_prefix('.') {
        Some(fraction) => {
            let end = fraction
                .find(|letter: char| !letter.is_ascii_digit())
                .unwrap_or(fraction.len());
            fraction
                .split_at_checked(end)
                .filter(|(part, _)| digits(part))
                .map(|(_, rest)| rest)
        }
        None => Some(rest),
    };
    let zone = rest.is_some_and(|rest| {
        let offset = rest.strip_prefix(['+', '-']).and_then(|offset| offset.split_once(':'));
        rest == "Z"
            || offset.is_some_and(|(hours, minutes)| {
                hours.len() == 2 && minutes.len() == 2 && digits(hours) && digits(minutes)
            })
    });
    has_form && zone && !date_time.ends_with(":60")
}
