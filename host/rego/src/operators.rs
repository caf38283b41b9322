//! Replaces operators in the text of a policy by calls, as the engine has no other hook for them.
//!
//! The engine computes with floats where OPA computes with decimals, orders a set before an object
//! where OPA has it after, and gives an object literal with the same key twice either value. The
//! functions called here give what OPA gives, or fail.
//!
//! A reference to `data` with an index finds the key `"1"` for the number 1, where one to an imported
//! name does not, so it becomes one. A call of a function that the engine does not have, with an argument
//! more for the result, becomes `result = function(…)`.
//!
//! Invariant: each character stays in its line, as records and coverage name lines.

use std::collections::{BTreeSet, HashMap};

use regorus::Value;
use regorus::unstable::{ArithOp, AssignOp, BoolOp, Expr, Lexer, Literal, Module, Query, Rule, Span, Token, TokenKind};

use crate::builtins;
use crate::functions::{numbers, opa};
use crate::syntax::{self, Path, text};

/// Names that begin so are those of the functions here.
pub(crate) const RESERVED: &str = "__tollgate_";
/// Most entries of an object literal with computed keys.
pub(crate) const MAX_ENTRIES: usize = 16;

pub(crate) const SAME_KEY: &str = "an object has the same key twice";
pub(crate) const UNCLEAR_ORDER: &str = "an order of a set and an object";

/// A function that stands for an operator.
#[derive(Clone)]
pub(crate) enum Operator {
    Compute(ArithOp),
    Order(BoolOp),
    /// An object literal with so many entries.
    Object(usize),
    /// A value that an object gives variables their values of, if it has the same keys.
    Exact,
    /// Of a collection, the items that `some … in` takes: those with the keys of its objects.
    Matching,
}

impl Operator {
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        use ArithOp::{Add, Div, Mod, Mul, Sub};
        use BoolOp::{Ge, Gt, Le, Lt};
        let computing = [Add, Sub, Mul, Div, Mod].into_iter().map(Self::Compute);
        let ordering = [Lt, Le, Gt, Ge].into_iter().map(Self::Order);
        let objects = (2..=MAX_ENTRIES).map(Self::Object);
        computing
            .chain(ordering)
            .chain(objects)
            .chain([Self::Exact, Self::Matching])
    }

    pub(crate) fn arity(&self) -> usize {
        match self {
            Self::Compute(_) | Self::Order(_) | Self::Exact => 2,
            Self::Matching => 3,
            Self::Object(entries) => 2 * entries,
        }
    }

    pub(crate) fn name(&self) -> String {
        let name = match self {
            Self::Compute(operator) => format!("{operator:?}"),
            Self::Order(operator) => format!("{operator:?}"),
            Self::Object(entries) => format!("object{entries}"),
            Self::Exact => "exact".to_owned(),
            Self::Matching => "matching".to_owned(),
        };
        format!("{RESERVED}{}", name.to_lowercase())
    }

    /// # Errors
    /// Why there is no value. The text has no values of the operands.
    pub(crate) fn apply(&self, operands: &[Value]) -> Result<Value, &'static str> {
        match (self, operands) {
            (Self::Compute(operator), [one, other]) => numbers::apply(operator, one, other),
            (Self::Order(operator), [one, other]) => {
                if (opa::holds_set(one) || opa::holds_set(other))
                    && (opa::holds_object(one) || opa::holds_object(other))
                {
                    return Err(UNCLEAR_ORDER);
                }
                let is_true = match operator {
                    BoolOp::Lt => one < other,
                    BoolOp::Le => one <= other,
                    BoolOp::Gt => one > other,
                    BoolOp::Ge => one >= other,
                    BoolOp::Eq => one == other,
                    BoolOp::Ne => one != other,
                };
                Ok(Value::from(is_true))
            }
            (Self::Object(_), entries) => {
                let mut object = std::collections::BTreeMap::new();
                for entry in entries.chunks_exact(2) {
                    if let [key, value] = entry
                        && object.insert(key.clone(), value.clone()).is_some()
                    {
                        return Err(SAME_KEY);
                    }
                }
                Ok(Value::from(object))
            }
            (Self::Exact, [template, value]) => Ok(match fits(template, value) {
                true => value.clone(),
                false => Value::Undefined,
            }),
            (Self::Matching, [key, value, collection]) => Ok(matching(key, value, collection)),
            (Self::Compute(_) | Self::Order(_) | Self::Exact | Self::Matching, _) => Err(numbers::NO_NUMBER),
        }
    }
}

/// Whether a value has the keys, and the number of items, of each object and array of a template.
fn fits(template: &Value, value: &Value) -> bool {
    match (template, value) {
        (Value::Object(template), Value::Object(value)) => {
            let mut entries = template.iter();
            template.len() == value.len()
                && entries.all(|(key, template)| value.get(key).is_some_and(|value| fits(template, value)))
        }
        (Value::Array(template), Value::Array(value)) => {
            template.len() == value.len()
                && template
                    .iter()
                    .zip(value.iter())
                    .all(|(template, value)| fits(template, value))
        }
        (Value::Object(_) | Value::Array(_), _) => false,
        _ => true,
    }
}

/// The items of a collection that fit, by their keys. What is no collection stays as it is.
fn matching(key: &Value, value: &Value, collection: &Value) -> Value {
    let entries: Vec<(Value, &Value)> = match collection {
        Value::Array(items) => (0_u64..).map(Value::from).zip(items.iter()).collect(),
        Value::Set(items) => items.iter().map(|item| (item.clone(), item)).collect(),
        Value::Object(fields) => fields.iter().map(|(key, value)| (key.clone(), value)).collect(),
        other => return other.clone(),
    };
    let taken = entries.into_iter().filter(|(k, v)| fits(key, k) && fits(value, v));
    let taken: std::collections::BTreeMap<_, _> = taken.map(|(key, value)| (key, value.clone())).collect();
    Value::from(taken)
}

/// The template of a pattern, as text: its arrays and objects, without what they hold. `None` if a key is no
/// text.
pub(crate) fn template(pattern: &Expr) -> Option<String> {
    let parts: Vec<String> = match pattern {
        Expr::Object { fields, .. } => {
            let mut parts = Vec::new();
            for (_, key, value) in fields {
                let key = serde_json::to_string(text(key)?).ok()?;
                parts.push(format!("{key}: {}", template(value)?));
            }
            return Some(format!("{{{}}}", parts.join(", ")));
        }
        Expr::Array { items, .. } => items.iter().map(|item| template(item)).collect::<Option<_>>()?,
        _ => return Some("null".to_owned()),
    };
    Some(format!("[{}]", parts.join(", ")))
}

/// Whether an expression is a part of something with a name: its text begins with the name and ends with it.
pub(crate) fn is_reference(expr: &Expr) -> bool {
    matches!(expr, Expr::RefDot { .. } | Expr::RefBrack { .. }) && matches!(syntax::base(expr), Expr::Var { .. })
}

/// Whether the collection of `some … in` can be the argument of a call.
pub(crate) fn can_be_wrapped(collection: &Expr) -> bool {
    is_reference(collection) || matches!(collection, Expr::Var { .. })
}

pub(crate) fn has_object(pattern: &Expr) -> bool {
    match pattern {
        Expr::Object { .. } => true,
        Expr::Array { items, .. } | Expr::Set { items, .. } => items.iter().any(|item| has_object(item)),
        _ => false,
    }
}

/// Whether an object literal could have one key twice.
pub(crate) fn has_computed_keys(expr: &Expr) -> bool {
    let Expr::Object { fields, .. } = expr else {
        return false;
    };
    fields.len() > 1 && fields.iter().any(|(_, key, _)| !is_literal(key))
}

pub(crate) fn is_literal(expr: &Expr) -> bool {
    matches!(
        expr,
        Expr::String { .. } | Expr::RawString { .. } | Expr::Number { .. } | Expr::Bool { .. } | Expr::Null { .. }
    )
}

/// A place in a text, with what is inserted there and how many bytes that replaces.
struct Edit {
    at: usize,
    replaced: usize,
    text: String,
}

/// Whether an expression binds variables.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Pattern,
    Value,
}

struct Rewriter<'a> {
    /// First byte and text of each token.
    tokens: Vec<(usize, String)>,
    /// Index in `tokens` by line and column.
    places: HashMap<(u32, u32), usize>,
    edits: Vec<Edit>,
    packages: &'a BTreeSet<Path>,
    /// Paths from `data` on that get a name.
    named: BTreeSet<Path>,
}

/// The path of a reference to `data` before its first index, if a name can be imported for it: not for
/// a package or what is above, which the engine evaluates otherwise.
pub(crate) fn nameable<'a>(expr: &'a Expr, packages: &BTreeSet<Path>) -> Option<(&'a Expr, Path)> {
    let Expr::RefBrack { refr, index, .. } = expr else {
        return None;
    };
    let mut before = &**refr;
    while let Expr::RefDot { refr, .. } = before {
        before = refr;
    }
    let path = syntax::fixed_start(refr).filter(|path| path.first().is_some_and(|root| root == "data"))?;
    let below = path.get(1..).filter(|below| !below.is_empty())?;
    let holds_package = packages.iter().any(|package| package.starts_with(below));
    (matches!(before, Expr::Var { .. }) && text(index).is_none() && !holds_package).then_some((before, path))
}

/// The name for a path. It is the same in all modules, as those of a package share their imports.
fn name_of(path: &[String]) -> String {
    let lengths: Vec<String> = path.iter().map(|part| part.len().to_string()).collect();
    format!("{RESERVED}{}_{}", path.join("_"), lengths.join("_"))
}

/// The paths of the packages of modules.
pub(crate) fn packages<'a>(modules: impl IntoIterator<Item = &'a Module>) -> BTreeSet<Path> {
    modules.into_iter().map(syntax::package).collect()
}

/// The text of a module with calls instead of operators.
pub(crate) fn rewritten(text: &str, module: &Module, packages: &BTreeSet<Path>) -> String {
    let source = &module.package.span.source;
    let mut lexer = Lexer::new(source);
    let (mut tokens, mut places) = (Vec::new(), HashMap::new());
    while let Ok(Token(kind, span)) = lexer.next_token() {
        if matches!(kind, TokenKind::Eof) {
            break;
        }
        places.insert((span.line, span.col), tokens.len());
        // Text in quotes can look like a symbol.
        let text = match kind {
            TokenKind::String | TokenKind::RawString => "",
            _ => span.text(),
        };
        tokens.push((byte(span.start), text.to_owned()));
    }
    let mut rewriter = Rewriter {
        tokens,
        places,
        edits: Vec::new(),
        packages,
        named: BTreeSet::new(),
    };
    module.policy.iter().for_each(|rule| rewriter.rule(rule));
    rewriter.imports(&module.package.span);
    let mut edits = rewriter.edits;
    // What closes a call is first where another one continues. The sort is stable, so that of two calls
    // that start in one place the outer one is first.
    edits.sort_by_key(|edit| (edit.at, edit.text != CLOSE, edit.replaced));
    let mut result = String::with_capacity(text.len() + 8 * edits.len());
    let mut copied = 0;
    for edit in edits {
        result.push_str(text.get(copied..edit.at).unwrap_or_default());
        result.push_str(&edit.text);
        copied = edit.at + edit.replaced;
    }
    result.push_str(text.get(copied..).unwrap_or_default());
    result
}

const CLOSE: &str = ")";

fn byte(position: u32) -> usize {
    usize::try_from(position).unwrap_or(usize::MAX)
}

impl Rewriter<'_> {
    fn edit(&mut self, at: usize, replaced: usize, text: impl Into<String>) {
        let text = text.into();
        self.edits.push(Edit { at, replaced, text });
    }

    fn rule(&mut self, rule: &Rule) {
        match rule {
            Rule::Default { value, .. } => self.value(value),
            Rule::Spec { head, bodies, .. } => {
                let (name, arguments, value) = syntax::head_parts(head);
                arguments.iter().for_each(|argument| self.expr(argument, Role::Pattern));
                std::iter::once(name).chain(value).for_each(|expr| self.value(expr));
                for body in bodies {
                    if let Some(assign) = &body.assign {
                        self.value(&assign.value);
                    }
                    self.query(&body.query);
                }
            }
        }
    }

    fn query(&mut self, query: &Query) {
        for statement in &query.stmts {
            match &statement.literal {
                Literal::SomeVars { .. } => {}
                Literal::SomeIn {
                    key, value, collection, ..
                } => {
                    key.iter()
                        .chain([value])
                        .for_each(|pattern| self.expr(pattern, Role::Pattern));
                    let key = key.as_deref();
                    if (key.is_some_and(has_object) || has_object(value)) && can_be_wrapped(collection) {
                        let key = key.map_or_else(|| Some("null".to_owned()), template);
                        if let (Some(key), Some(value)) = (key, template(value)) {
                            self.wrap(collection, &Operator::Matching, &format!("{key}, {value}"));
                        }
                    }
                    self.value(collection);
                }
                Literal::Expr { expr, .. } => {
                    self.result(expr);
                    self.value(expr);
                }
                Literal::NotExpr { expr, .. } => self.value(expr),
                Literal::Every { domain, query, .. } => {
                    self.value(domain);
                    self.query(query);
                }
            }
            statement
                .with_mods
                .iter()
                .for_each(|modifier| self.value(&modifier.r#as));
        }
    }

    /// Puts the argument that takes the result of a call before it.
    fn result(&mut self, statement: &Expr) {
        let Expr::Call { fcn, params, .. } = statement else {
            return;
        };
        let Some(result) = builtins::own_result(fcn, params) else {
            return;
        };
        let (start, end) = (byte(syntax::base(fcn).span().start), byte(result.span().end));
        let place = (result.span().line, result.span().col);
        let comma = self.places.get(&place).and_then(|at| at.checked_sub(1));
        let Some(comma) = comma.and_then(|at| self.tokens.get(at)).map(|(at, _)| *at) else {
            return;
        };
        let lines = usize::try_from(result.span().line).unwrap_or(usize::MAX);
        let lines = lines.saturating_sub(self.line_of(comma));
        self.edit(start, 0, format!("{} = ", result.span().text()));
        self.edit(comma, end.saturating_sub(comma), "\n".repeat(lines));
    }

    /// The line of the token at a byte.
    fn line_of(&self, at: usize) -> usize {
        let mut places = self.places.iter();
        let place = places.find(|(_, token)| self.tokens.get(**token).is_some_and(|(start, _)| *start == at));
        place.map_or(0, |((line, _), _)| usize::try_from(*line).unwrap_or(0))
    }

    /// Imports the names for paths, in the line of the package.
    fn imports(&mut self, package: &Span) {
        let imports = self
            .named
            .iter()
            .map(|path| format!(" import {} as {}", path.join("."), name_of(path)));
        let imports: String = imports.collect();
        if !imports.is_empty() {
            self.edit(byte(package.end), 0, imports);
        }
    }

    fn value(&mut self, expr: &Expr) {
        self.expr(expr, Role::Value);
    }

    fn expr(&mut self, expr: &Expr, role: Role) {
        match expr {
            Expr::AssignExpr { op, lhs, rhs, .. } => {
                for (pattern, other) in [(lhs, rhs), (rhs, lhs)] {
                    let gives_values = has_object(pattern) && matches!(op, AssignOp::Eq);
                    if gives_values
                        && is_reference(other)
                        && let Some(template) = template(pattern)
                    {
                        self.wrap(other, &Operator::Exact, &template);
                    }
                }
                self.expr(lhs, Role::Pattern);
                self.expr(
                    rhs,
                    if matches!(op, AssignOp::Eq) {
                        Role::Pattern
                    } else {
                        Role::Value
                    },
                );
                return;
            }
            // The place of such an expression is that of its operator, and its text all of it.
            Expr::ArithExpr { span, op, .. } => self.operator(span, &Operator::Compute(op.clone()), 1),
            // A scalar comes before every collection, so the order of what that holds does not matter.
            Expr::BoolExpr { span, op, lhs, rhs, .. } if !is_literal(lhs) && !is_literal(rhs) => match op {
                BoolOp::Lt | BoolOp::Gt => self.operator(span, &Operator::Order(op.clone()), 1),
                BoolOp::Le | BoolOp::Ge => self.operator(span, &Operator::Order(op.clone()), 2),
                BoolOp::Eq | BoolOp::Ne => {}
            },
            Expr::Object { span, fields, .. } if role == Role::Value && has_computed_keys(expr) => {
                self.object(span, fields.len());
            }
            Expr::RefBrack { refr, .. } => {
                if let Some((root, path)) = nameable(expr, self.packages) {
                    let (start, end) = (byte(root.span().start), byte(refr.span().end));
                    self.edit(start, end.saturating_sub(start), name_of(&path));
                    self.named.insert(path);
                }
            }
            _ => {}
        }
        let role = match expr {
            Expr::Array { .. } | Expr::Object { .. } | Expr::Set { .. } => role,
            _ => Role::Value,
        };
        let syntax::Parts { exprs, query } = syntax::parts(expr);
        exprs.into_iter().for_each(|part| self.expr(part, role));
        query.into_iter().for_each(|query| self.query(query));
    }

    /// Makes an expression the last argument of a call.
    fn wrap(&mut self, expr: &Expr, operator: &Operator, arguments: &str) {
        let (start, end) = (byte(syntax::base(expr).span().start), byte(expr.span().end));
        self.edit(start, 0, format!("{}({arguments}, ", operator.name()));
        self.edit(end, 0, CLOSE);
    }

    fn operator(&mut self, span: &Span, operator: &Operator, length: usize) {
        let place = self
            .places
            .get(&(span.line, span.col))
            .and_then(|place| self.tokens.get(*place));
        let Some(&(at, _)) = place else { return };
        self.edit(byte(span.start), 0, format!("{}(", operator.name()));
        self.edit(at, length, ",");
        self.edit(byte(span.end), 0, CLOSE);
    }

    /// `{key: value, …}`. The place of an object is that of its bracket.
    fn object(&mut self, span: &Span, entries: usize) {
        let Some(&open) = self.places.get(&(span.line, span.col)) else {
            return;
        };
        let (mut depth, mut edits) = (0_usize, Vec::new());
        for (at, text) in self.tokens.iter().skip(open) {
            match text.as_str() {
                "{" | "[" | "(" | "set(" => depth += 1,
                "}" | "]" | ")" => depth = depth.saturating_sub(1),
                ":" if depth == 1 => edits.push((*at, ",".to_owned())),
                _ => {}
            }
            if depth == 0 {
                edits.push((*at, CLOSE.to_owned()));
                break;
            }
        }
        if let Some((at, _)) = self.tokens.get(open) {
            edits.push((*at, format!("{}(", Operator::Object(entries).name())));
        }
        edits.into_iter().for_each(|(at, text)| self.edit(at, 1, text));
    }
}

#[cfg(test)]
mod tests {
    use super::{packages, rewritten};
    use crate::engine::parse_text;

    #[track_caller]
    fn rule(text: &str) -> String {
        let text = format!("package p\n{text}\n");
        let module = parse_text("p.rego", &text).unwrap();
        let rewritten = rewritten(&text, &module, &packages([&module]));
        assert_eq!(rewritten.lines().count(), text.lines().count());
        parse_text("p.rego", &rewritten).unwrap();
        rewritten.lines().skip(1).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn operators_become_calls_in_their_lines() {
        for (written, expected) in [
            ("x := 1 + 2", "x := __tollgate_add(1 , 2)"),
            (
                "x := a*b+c -1",
                "x := __tollgate_sub(__tollgate_add(__tollgate_mul(a,b),c) ,1)",
            ),
            (
                "x := (1 + 2) * (3 / y)",
                "x := __tollgate_mul((__tollgate_add(1 , 2)) , (__tollgate_div(3 , y)))",
            ),
            ("x := 1 +\n\t2 # 3 + 4\n", "x := __tollgate_add(1 ,\n\t2) # 3 + 4"),
            (
                "x := {y: 1, \"z\": {2: 3}[0]}",
                "x := __tollgate_object2(y, 1, \"z\", {2: 3}[0])",
            ),
            (
                "x if {y: v, \"z\": 1} = {\"a\": y < z}",
                "x if {y: v, \"z\": 1} = {\"a\": __tollgate_lt(y , z)}",
            ),
            (
                "x := {y + 1: {z: 1 - 2, \"a\": 3 * 4}}",
                "x := {__tollgate_add(y , 1): __tollgate_object2(z, __tollgate_sub(1 , 2), \"a\", __tollgate_mul(3 , 4))}",
            ),
            ("x if net.cidr_contains(a, b, c)", "x if c = net.cidr_contains(a, b)"),
            (
                "x if {\n\tarray.flatten([1 + 2],\n\tc)\n}",
                "x if {\n\tc = array.flatten([__tollgate_add(1 , 2)]\n)\n}",
            ),
            (
                "x := data.a.b[y] + data.p[z]",
                "x := __tollgate_add(__tollgate_data_a_b_4_1_1[y] , data.p[z])",
            ),
            (
                "x if {\"a\": y, \"b\": [z, {\"c\": 1}]} = data.p[i]",
                "x if {\"a\": y, \"b\": [z, {\"c\": 1}]} = __tollgate_exact({\"a\": null, \"b\": [null, {\"c\": null}]}, data.p[i])",
            ),
            (
                "x if some k, {\"a\": y} in data.a.b",
                "x if some k, {\"a\": y} in __tollgate_matching(null, {\"a\": null}, data.a.b)",
            ),
            ("x := \"1 + 2\"", "x := \"1 + 2\""),
            (
                "x := {y: \"{:\", \":\": `}`}",
                "x := __tollgate_object2(y, \"{:\", \":\", `}`)",
            ),
            (
                "x[y % 2] := y - 1 if some y in [\"é\", 2 - 3]",
                "x[__tollgate_mod(y , 2)] := __tollgate_sub(y , 1) if some y in [\"é\", __tollgate_sub(2 , 3)]",
            ),
            (
                "x if {\n\tf(1 + 2)\n\t\ty >= z - 2 } else := 3 + 4 if z",
                "x if {\n\tf(__tollgate_add(1 , 2))\n\t\t__tollgate_ge(y , __tollgate_sub(z , 2)) } else := __tollgate_add(3 , 4) if z",
            ),
        ] {
            assert_eq!(rule(written).trim_end(), expected);
        }
    }
}
