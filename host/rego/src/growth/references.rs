//! Resolves what an expression and the names in it refer to, and computes its size.
//!
//! Invariant: a name without an origin is refused.

use std::collections::BTreeMap;
use std::rc::Rc;

use regorus::unstable::{ArithOp, Expr, ExprRef, Query, Span};

use super::syntax::{Step, fixed_start, steps};
use super::{
    BindingSite, MAX_NUMBER_NODES, MAX_STEPS, MAX_TABLE_NODES, MAX_WRITTEN_NODES, ModuleContext, Path, Scope, Size,
    SizeEstimator, SizeResult, Source, Variable, builtins, checked, syntax, too_large,
};
use crate::builtins::{REPLACE_FACTOR, ResultSize};
use crate::functions::opa::{MAX_RANGE, MAX_TEXT_BYTES};
use crate::functions::reachable::MAX_PATH;
use crate::schema::resolved;
use tollgate_core::diagnostic::Diagnostic;

/// The path below `data` to which a function's name refers, if a rule has it.
fn function_path<T>(context: &ModuleContext, rules: &BTreeMap<Path, T>, function: &Expr) -> Option<Path> {
    let path = fixed_start(function)?;
    let full = syntax::resolve(&context.package, |name| context.imports.get(name), &path)?;
    rules.contains_key(&full).then_some(full)
}

/// Number of arguments of the function with that name, if it exists.
pub(super) fn arity(context: &ModuleContext, functions: &BTreeMap<Path, usize>, function: &Expr) -> Option<usize> {
    if let Some(path) = function_path(context, functions, function) {
        return functions.get(&path).copied();
    }
    let path = fixed_start(function)?;
    builtins::arity(&path.join("."))
}

fn inside(size: Size, levels: usize) -> Size {
    (0..levels).fold(size, |size, _| size.any_item().either(size.any_key()))
}

impl<'a> SizeEstimator<'a> {
    pub(super) fn expr(&mut self, scope: &mut Scope<'a>, expr: &'a Expr) -> SizeResult {
        self.steps = self.steps.saturating_add(1);
        if self.steps > MAX_STEPS {
            let message = format!("more than {MAX_STEPS} steps are needed to tell how large values can get");
            let hint = "call functions with fewer different arguments";
            return Err(too_large(syntax::base(expr).span(), message, hint));
        }
        let size = match expr {
            Expr::String { span, .. } | Expr::RawString { span, .. } | Expr::Number { span, .. } => {
                Size::text(span.text().len())
            }
            Expr::Bool { .. } | Expr::Null { .. } => Size::ONE,
            Expr::Var { .. } | Expr::RefDot { .. } | Expr::RefBrack { .. } => self.reference(scope, expr)?,
            Expr::Array { items, .. } => self.items(scope, items, Some(Size::ONE))?,
            Expr::Set { items, .. } => self.items(scope, items, None)?,
            Expr::Object { fields, .. } => {
                let mut entries = Vec::with_capacity(fields.len());
                for (_, key, value) in fields {
                    entries.push((Some(self.expr(scope, key)?), self.expr(scope, value)?));
                }
                Size::literal(entries.into_iter())
            }
            Expr::ArrayCompr { term, query, .. } => self.comprehension(scope, query, None, term, Some(Size::ONE))?,
            Expr::SetCompr { term, query, .. } => self.comprehension(scope, query, None, term, None)?,
            Expr::ObjectCompr { key, value, query, .. } => self.comprehension(scope, query, Some(key), value, None)?,
            Expr::Call { fcn, params, .. } => self.call(scope, fcn, params)?,
            Expr::UnaryExpr { expr, .. } => Size::flat(self.expr(scope, expr)?.scalar, 1),
            Expr::BinExpr { lhs, rhs, .. } => self.expr(scope, lhs)?.joined(self.expr(scope, rhs)?),
            Expr::ArithExpr { op, lhs, rhs, .. } => {
                let (left, right) = (self.expr(scope, lhs)?, self.expr(scope, rhs)?);
                arithmetic(expr, op, left, right)?
            }
            Expr::BoolExpr { .. } | Expr::AssignExpr { .. } | Expr::Membership { .. } => {
                for part in syntax::parts(expr).exprs {
                    self.expr(scope, part)?;
                }
                Size::ONE
            }
        };
        checked(size, syntax::base(expr).span())
    }

    /// `index`: the size of the key of each item if the head names no key.
    fn comprehension(
        &mut self,
        scope: &mut Scope<'a>,
        query: &'a Query,
        key: Option<&'a Expr>,
        value: &'a Expr,
        index: Option<Size>,
    ) -> SizeResult {
        let mut iterations = self.query(scope, query)?;
        let key = match key {
            Some(key) => Some(self.expr_in_loop(scope, key, &mut iterations)?),
            None => index,
        };
        let value = self.expr_in_loop(scope, value, &mut iterations)?;
        Ok(Size::collected(key, value, iterations))
    }

    fn items(&mut self, scope: &mut Scope<'a>, items: &'a [ExprRef], key: Option<Size>) -> SizeResult {
        let mut entries = Vec::with_capacity(items.len());
        for item in items {
            entries.push((key, self.expr(scope, item)?));
        }
        Ok(Size::literal(entries.into_iter()))
    }

    fn reference(&mut self, scope: &mut Scope<'a>, expr: &'a Expr) -> SizeResult {
        let steps = steps(expr);
        for index in steps.iter().filter_map(Step::index) {
            self.expr(scope, index)?;
        }
        let base = syntax::base(expr);
        let Expr::Var { span, .. } = base else {
            let size = self.expr(scope, base)?;
            return Ok(steps.iter().fold(size, |size, _| size.any_item()).into_shared());
        };
        let name = span.text();
        let mut size = None;
        let definition = Rc::clone(&scope.definition);
        for variable in definition.variables.meanings(base) {
            if definition.variables.origins.contains_key(variable) {
                let variable = self.variable(scope, *variable, span)?;
                let part = steps.iter().fold(variable, |size, _| size.any_item());
                size = Some(size.map_or(part, |size: Size| size.either(part)));
            }
        }
        if let Some(path) = self.path(scope, name) {
            let fixed = steps.iter().map_while(Step::fixed).map(str::to_owned);
            let full: Path = path.into_iter().chain(fixed).collect();
            let rest = steps.iter().skip_while(|step| step.fixed().is_some()).count();
            let outside = (0..rest).fold(self.global(&full)?, |size, _| size.any_item());
            size = Some(size.map_or(outside, |size| size.either(outside)));
        }
        match size {
            Some(size) => Ok(size.into_shared()),
            // Each `_` is a new variable that stands for anything.
            None if name == "_" => Ok(Size::ONE),
            // A name that is neither a variable nor a rule is never defined.
            None if scope_is_global(name) => Ok(Size::ONE),
            None => {
                let message = format!("nothing tells how large `{name}` can get");
                Err(too_large(span, message, "give it a value with `:=` or `some … in`"))
            }
        }
    }

    /// The full path, starting with `data` or `input`, to which a name refers outside of its rule.
    fn path(&self, scope: &Scope<'a>, name: &str) -> Option<Path> {
        if scope_is_global(name) {
            return Some(vec![name.to_owned()]);
        }
        let context = &scope.definition.context;
        if let Some(import) = context.imports.get(name) {
            return Some(import.clone());
        }
        let mut own = context.package.clone();
        own.push(name.to_owned());
        let is_rule = syntax::rules_below(&self.rules, &own).next().is_some();
        is_rule.then(|| ["data".to_owned()].into_iter().chain(own).collect())
    }

    /// The size of the rules, data and input to which `path` can refer.
    fn global(&mut self, path: &Path) -> SizeResult {
        let mut size = self.outside(path);
        if let Some((root, below)) = path.split_first()
            && root == "data"
        {
            let reached = syntax::rules_below(&self.rules, below);
            let reached: Vec<Path> = reached.map(|(rule_path, _)| rule_path.clone()).collect();
            for rule_path in reached {
                let rule = self.value(&rule_path, None)?;
                // The rules below the path form an object, so their sizes add up.
                let rule = rule_path.iter().skip(below.len()).rev().fold(rule, |rule, key| {
                    Size::literal([(Some(Size::text(key.len())), rule)].into_iter())
                });
                size = Some(size.map_or(rule, |size| size.joined(rule)));
            }
            for length in 1..below.len() {
                let (above, rest) = below.split_at(length);
                let above = above.to_vec();
                if self.rules.contains_key(&above) {
                    let rule = rest.iter().fold(self.value(&above, None)?, |size, _| size.any_item());
                    size = Some(size.map_or(rule, |size| size.either(rule)));
                }
            }
        }
        // A reference without a value is undefined and counts as a small value: it must not be
        // reported as unknown.
        Ok(size.unwrap_or(Size::ONE))
    }

    /// The size of `path` in the data files, or in `input` by its schema.
    fn outside(&mut self, path: &Path) -> Option<Size> {
        if let Some(&size) = self.outside.get(path) {
            return Some(size);
        }
        let (root, below) = path.split_first()?;
        let size = if root == "input" {
            let mut schema = self.schema;
            let mut steps = below.iter();
            let mut rest = 0;
            for key in steps.by_ref() {
                let Some(next) = schema.get("properties").and_then(|properties| properties.get(key)) else {
                    rest = 1;
                    break;
                };
                schema = resolved(self.schema, next).unwrap_or(next);
            }
            rest += steps.count();
            (0..rest).fold(Size::of_schema(self.schema, schema), |size, _| size.any_item())
        } else {
            let mut value = self.data;
            for key in below {
                value = value.get(key)?;
            }
            Size::of_json(value)
        };
        self.outside.insert(path.clone(), size);
        Some(size)
    }

    /// The largest size that any of its origins can give a variable.
    ///
    /// At evaluation one origin gives the value, and evaluating it never needs the variable itself.
    /// An origin that leads back to the variable therefore adds nothing. Sizes that were computed
    /// within such a cycle are not cached, as they hold only for this path.
    fn variable(&mut self, scope: &mut Scope<'a>, variable: Variable<'a>, span: &Span) -> SizeResult {
        if let Some(&size) = scope.sizes.get(&variable) {
            return Ok(size);
        }
        let mut open = scope.open.iter().enumerate();
        if let Some((at, &(_, queries))) = open.find(|(_, (open, _))| *open == variable) {
            // For the engine the name could be another variable here.
            if variable.bound == BindingSite::AtDeclaration || scope.queries > queries {
                let message = format!("`{}` is used in what gives it its value", span.text());
                return Err(too_large(span, message, "give one of both another name"));
            }
            scope.cycle_start = scope.cycle_start.min(at);
            return Ok(Size::NONE);
        }
        let definition = Rc::clone(&scope.definition);
        let at = scope.open.len();
        scope.open.push((variable, scope.queries));
        let outer_cycle_start = std::mem::replace(&mut scope.cycle_start, usize::MAX);
        let mut size = Size::NONE;
        for &(source, levels) in definition.variables.origins.get(&variable).into_iter().flatten() {
            let given = match source {
                Source::Value(expr) => self.expr(scope, expr)?,
                Source::Key(expr) => self.expr(scope, expr)?.any_key(),
                Source::Argument(argument) => scope.arguments.get(argument).copied().unwrap_or(Size::ONE),
            };
            size = size.either(inside(given, levels));
        }
        scope.open.pop();
        let size = size.into_shared();
        if scope.cycle_start >= at {
            scope.cycle_start = usize::MAX;
            scope.sizes.insert(variable, size);
        }
        scope.cycle_start = scope.cycle_start.min(outer_cycle_start);
        Ok(size)
    }

    fn call(&mut self, scope: &mut Scope<'a>, function: &'a Expr, parameters: &'a [ExprRef]) -> SizeResult {
        let rule = function_path(&scope.definition.context, &self.rules, function);
        let name = syntax::dotted(function);
        let arity = match &rule {
            Some(path) => self
                .rules
                .get(path)
                .and_then(|definitions| definitions.iter().find_map(|definition| syntax::arity(definition.rule))),
            None => builtins::arity(&name),
        };
        let mut arguments = Vec::with_capacity(parameters.len());
        for parameter in parameters {
            arguments.push(self.expr(scope, parameter)?);
        }
        // An argument beyond those of the function is bound to its result.
        arguments.truncate(arity.unwrap_or(usize::MAX));
        if let Some(path) = rule {
            return self.value(&path, Some(arguments));
        }
        let Some(result_size) = builtins::result_size(&name) else {
            let message = format!("nothing tells how large the result of `{name}` can get");
            let hint = "docs/policy-language.md lists the functions there are";
            return Err(too_large(function.span(), message, hint));
        };
        result(function, result_size, &arguments)
    }
}

fn scope_is_global(name: &str) -> bool {
    name == "input" || name == "data"
}

fn result(function: &Expr, result_size: ResultSize, arguments: &[Size]) -> SizeResult {
    let argument = |at: usize| arguments.get(at).copied().unwrap_or(Size::ONE);
    let first = argument(0);
    let all = arguments.iter().copied().fold(Size::NONE, Size::joined);
    written(function, result_size, all)?;
    Ok(match result_size {
        ResultSize::Fact | ResultSize::Small => Size::ONE,
        ResultSize::Sum => Size::flat(first.scalar, 1),
        ResultSize::Scalar { factor } => Size::flat(first.scalar, factor),
        ResultSize::First => first,
        ResultSize::Item => first.any_item().either(argument(2)),
        ResultSize::Keys => first.keys(),
        ResultSize::Fields => Size::literal((0..8).map(|_| (Some(Size::ONE), Size::flat(first.scalar, 1)))),
        ResultSize::Joined => all,
        ResultSize::Merged => first.merged(),
        ResultSize::Parts => Size::literal((0..4).map(|_| (Some(Size::ONE), Size::ONE))),
        ResultSize::Pieces => first.pieces(),
        ResultSize::Parameters => first.parameters(),
        ResultSize::Matches => argument(1).pieces(),
        ResultSize::Numbers => Size::collected(Some(Size::ONE), Size::ONE, MAX_RANGE.unsigned_abs()),
        ResultSize::Digest => Size::text(128),
        ResultSize::Encoded => Size::flat(all.written(), 4),
        ResultSize::Flattened => first.flattened(),
        ResultSize::Named => {
            let name = |size: Size| size.any_key().either(size);
            let pair = [name(first), name(argument(1))].map(|name| (Some(Size::ONE), name));
            Size::collected(None, Size::literal(pair.into_iter()), MAX_RANGE.unsigned_abs())
        }
        ResultSize::Paths => {
            let start = argument(1).any_item();
            let node = first.any_key().either(first.any_item().any_item()).either(start);
            let path = Size::collected(Some(Size::ONE), node, MAX_PATH as u64);
            Size::collected(None, path, MAX_RANGE.unsigned_abs())
        }
        ResultSize::ReplacedSecond => Size::flat(argument(1).scalar, REPLACE_FACTOR as u64),
        ResultSize::Submatches => {
            let texts = Size::collected(
                Some(Size::ONE),
                Size::flat(argument(1).scalar, 1),
                MAX_RANGE.unsigned_abs(),
            );
            Size::collected(Some(Size::ONE), texts, 3).either(texts)
        }
        ResultSize::Concatenated => Size::flat(all.tree.saturating_add(argument(1).length), 1),
        ResultSize::Formatted => Size::flat(all.written(), 1),
        ResultSize::Written => {
            // Go escapes a letter with six bytes.
            let line = argument(1).scalar.saturating_mul(first.depth.saturating_add(1));
            let most = Size::text(MAX_TEXT_BYTES).scalar;
            Size::flat(first.written().saturating_mul(line.saturating_add(6)).min(most), 1)
        }
    })
}

/// Refuses arguments that are too large to be written out. `sprintf` writes them out, and so does
/// the engine in the error of any function whose argument has the wrong type.
fn written(function: &Expr, result_size: ResultSize, all: Size) -> Result<(), Box<Diagnostic>> {
    let allowed = match result_size {
        ResultSize::Fact => return Ok(()),
        ResultSize::Sum
        | ResultSize::First
        | ResultSize::Item
        | ResultSize::Keys
        | ResultSize::Named
        | ResultSize::Paths
        | ResultSize::Flattened
        | ResultSize::Joined
        | ResultSize::Merged => MAX_TABLE_NODES,
        ResultSize::Small
        | ResultSize::Digest
        | ResultSize::Encoded
        | ResultSize::ReplacedSecond
        | ResultSize::Submatches
        | ResultSize::Scalar { .. }
        | ResultSize::Parts
        | ResultSize::Fields
        | ResultSize::Pieces
        | ResultSize::Parameters
        | ResultSize::Matches
        | ResultSize::Numbers
        | ResultSize::Concatenated
        | ResultSize::Formatted
        | ResultSize::Written => MAX_WRITTEN_NODES,
    };
    let observed = all.written();
    if observed > allowed {
        let message = format!("what the function takes can have {observed} nodes written out, {allowed} are allowed");
        let hint = "give it only the fields it needs";
        return Err(too_large(syntax::base(function).span(), message, hint));
    }
    Ok(())
}

fn arithmetic(expr: &Expr, op: &ArithOp, left: Size, right: Size) -> SizeResult {
    let digits = match op {
        // This can also be the difference of two sets.
        ArithOp::Sub => return Ok(left.either(Size::flat(right.scalar, 1))),
        ArithOp::Add => left.scalar.max(right.scalar),
        ArithOp::Mul | ArithOp::Div | ArithOp::Mod => left.scalar.saturating_add(right.scalar),
    };
    if digits > MAX_NUMBER_NODES {
        let (observed, allowed) = (digits.saturating_mul(64), MAX_NUMBER_NODES * 64);
        let message = format!("the number can have {observed} digits, {allowed} are allowed");
        return Err(too_large(
            syntax::base(expr).span(),
            message,
            "multiply smaller numbers",
        ));
    }
    Ok(Size::flat(digits, 1))
}
