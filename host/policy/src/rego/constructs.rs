//! Refuses what the engine evaluates otherwise than OPA does, by name, and says what to write instead.
//!
//! Security: each of these can turn a denial into an allow. docs/decisions/rego-engine.md has the cause
//! of each in the engine.

use std::collections::{BTreeMap, BTreeSet};

use regorus::unstable::{AssignOp, Expr, Literal, Module, Query, Rule, RuleHead};
use serde_json::Value as Json;

use super::builtins;
use super::syntax::{self, Path, Step, fixed_start, start_of};
use tollgate_core::diagnostic::{Diagnostic, Location};

/// Checks all modules together with the tree of the data files.
pub(super) fn check(modules: &[Module], data: &Json) -> Vec<Diagnostic> {
    let rules: BTreeMap<Path, Location> = modules
        .iter()
        .flat_map(|module| {
            let package = syntax::package(module);
            let rules = module.policy.iter();
            rules.map(move |rule| (syntax::rule_path(&package, rule), syntax::location(rule.span())))
        })
        .collect();
    let imports = syntax::imports(modules);
    let mut found = hidden_by_data(&rules, data);
    for module in modules {
        let package = syntax::package(module);
        let imported = imports.get(&package).into_iter().flat_map(BTreeMap::keys);
        let own = syntax::rules_below(&rules, &package).filter_map(|(path, _)| path.get(package.len()));
        let mut checker = Checker {
            rules: &rules,
            data,
            global: imported
                .chain(own)
                .map(String::as_str)
                .chain(["input", "data"])
                .collect(),
            found: &mut found,
        };
        module.policy.iter().for_each(|rule| checker.rule(rule));
    }
    found
}

/// Rules that a data file has a value for. The engine would take the value and not ask the rule.
fn hidden_by_data(rules: &BTreeMap<Path, Location>, data: &Json) -> Vec<Diagnostic> {
    let is_hidden = |path: &Path| {
        let mut at = data;
        for part in path {
            match at.as_object().map(|fields| fields.get(part)) {
                Some(Some(next)) => at = next,
                Some(None) => return false,
                // The data has a value above the rule.
                None => return true,
            }
        }
        true
    };
    let hidden = rules.iter().filter(|(path, _)| is_hidden(path));
    let finding = |(path, location): (&Path, &Location)| {
        let message = format!("a data file has a value for the rule `data.{}`", path.join("."));
        Diagnostic::error(location.clone(), message).with_hint("give the data file or the package another name")
    };
    hidden.map(finding).collect()
}

/// Where the value of an expression goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Position {
    /// It is a condition: false and undefined are the same.
    Condition,
    Value,
}

struct Checker<'a> {
    rules: &'a BTreeMap<Path, Location>,
    data: &'a Json,
    /// Names of the package that are no variables.
    global: BTreeSet<&'a str>,
    found: &'a mut Vec<Diagnostic>,
}

impl<'a> Checker<'a> {
    fn rule(&mut self, rule: &'a Rule) {
        let Rule::Spec { head, bodies, .. } = rule else {
            return;
        };
        let mut arguments = BTreeSet::new();
        let (name, _, value) = syntax::head_parts(head);
        if let RuleHead::Func { args, .. } = head {
            args.iter().for_each(|argument| bind(argument, &mut arguments));
            for (body, next) in bodies.iter().zip(bodies.iter().skip(1)) {
                let assigned = body.assign.as_ref().map(|assign| &*assign.value);
                let given = if body.is_else { assigned } else { value };
                if let Some(given) = given.filter(|_| next.is_else) {
                    self.value_before_else(given, &body.query, &arguments);
                }
            }
        }
        let heads: Vec<&Expr> = value.into_iter().chain(indices(name)).collect();
        if bodies.is_empty() {
            heads
                .iter()
                .for_each(|head| self.expr(head, Position::Value, &arguments));
        }
        for body in bodies {
            let assigned = body.assign.iter().map(|assign| &*assign.value);
            let heads: Vec<&Expr> = heads.iter().copied().chain(assigned).collect();
            self.query(&body.query, &heads, &arguments);
        }
    }

    /// A function whose value is undefined has no value for the engine, and goes on with `else` in OPA.
    fn value_before_else(&mut self, value: &'a Expr, query: &'a Query, arguments: &BTreeSet<&'a str>) {
        if self.is_defined(value, &self.bound_by(query, arguments)) {
            return;
        }
        let message = "the value of a function with `else` must be a literal or a variable";
        let hint = "give it a name in the body, with `:=`";
        self.found
            .push(Diagnostic::error(start_of(value), message).with_hint(hint));
    }

    /// The variables that are bound in a query.
    fn bound_by(&self, query: &'a Query, outer: &BTreeSet<&'a str>) -> BTreeSet<&'a str> {
        let mut bound = outer.clone();
        for statement in &query.stmts {
            match &statement.literal {
                Literal::SomeIn {
                    key, value, collection, ..
                } => {
                    key.iter().chain([value]).for_each(|pattern| bind(pattern, &mut bound));
                    bind_indices(collection, &mut bound);
                }
                Literal::Expr { expr, .. } => bind_statement(expr, &mut bound),
                Literal::Every { domain, .. } => bind_indices(domain, &mut bound),
                Literal::SomeVars { .. } | Literal::NotExpr { .. } => {}
            }
        }
        bound
    }

    /// - `heads`: what is evaluated for each solution.
    /// - `outer`: the variables that are bound around it.
    fn query(&mut self, query: &'a Query, heads: &[&'a Expr], outer: &BTreeSet<&'a str>) {
        let bound = self.bound_by(query, outer);
        for statement in &query.stmts {
            match &statement.literal {
                Literal::SomeVars { .. } => {}
                Literal::SomeIn {
                    key, value, collection, ..
                } => {
                    for expr in key.iter().chain([value, collection]) {
                        self.expr(expr, Position::Value, &bound);
                    }
                }
                Literal::Expr { expr, .. } => self.expr(expr, Position::Condition, &bound),
                Literal::NotExpr { expr, .. } => {
                    self.negated(expr, &bound);
                    self.expr(expr, Position::Condition, &bound);
                }
                Literal::Every {
                    key,
                    value,
                    domain,
                    query,
                    ..
                } => {
                    self.expr(domain, Position::Value, &bound);
                    let mut inner = bound.clone();
                    inner.extend(key.iter().chain([value]).map(|name| name.text()));
                    self.query(query, &[], &inner);
                }
            }
        }
        heads.iter().for_each(|head| self.expr(head, Position::Value, &bound));
    }

    fn expr(&mut self, expr: &'a Expr, position: Position, bound: &BTreeSet<&'a str>) {
        match expr {
            Expr::Membership {
                key, value, collection, ..
            } => {
                self.membership((key.as_deref(), value, collection), position, bound);
            }
            Expr::RefBrack { .. } | Expr::RefDot { .. } => self.data_reference(expr, bound),
            _ => {}
        }
        let syntax::Parts { exprs, query } = syntax::parts(expr);
        match query {
            Some(query) => self.query(query, &exprs, bound),
            None => exprs
                .into_iter()
                .for_each(|part| self.expr(part, Position::Value, bound)),
        }
    }

    /// `not xs[_] == 1` means for the engine that some item is not 1. OPA refuses it.
    fn negated(&mut self, expr: &'a Expr, bound: &BTreeSet<&'a str>) {
        if let Expr::RefBrack { index, .. } = expr
            && let Some(name) = variables(index).into_iter().find(|name| !self.is_bound(name, bound))
        {
            let message = format!("`{name}` within `not` has no value there, so what is negated is unclear");
            let hint = "make the condition a rule or function and negate that, or use `every`";
            self.found
                .push(Diagnostic::error(start_of(expr), message).with_hint(hint));
            return;
        }
        let syntax::Parts { exprs, query } = syntax::parts(expr);
        if query.is_none() {
            exprs.into_iter().for_each(|part| self.negated(part, bound));
        }
    }

    fn is_bound(&self, name: &str, bound: &BTreeSet<&str>) -> bool {
        name != "_" && (bound.contains(name) || self.global.contains(name))
    }

    /// `in` with a part that has no value is false for the engine and has no value in OPA. With a key,
    /// two missing values are equal for the engine.
    fn membership(
        &mut self,
        (key, value, collection): (Option<&'a Expr>, &'a Expr, &'a Expr),
        position: Position,
        bound: &BTreeSet<&'a str>,
    ) {
        let is_defined = |part: &Expr| self.is_defined(part, bound);
        let place = || start_of(value);
        let finding = if key.is_some() && !is_defined(value) {
            let hint = "give the value a name first, with `:=`";
            Diagnostic::error(
                place(),
                "the value of `key, value in …` must be a literal or a variable",
            )
            .with_hint(hint)
        } else if position == Position::Value && !key.into_iter().chain([value, collection]).all(is_defined) {
            let hint = "write it as a condition, such as `name if x in xs`, or give the parts names first, with `:=`";
            let message = "`in` is used as a value, and its parts are not literals or variables";
            Diagnostic::error(place(), message).with_hint(hint)
        } else {
            return;
        };
        self.found.push(finding);
    }

    /// Whether an expression has a value for every input.
    fn is_defined(&self, expr: &Expr, bound: &BTreeSet<&str>) -> bool {
        match expr {
            Expr::Var { span, .. } => bound.contains(span.text()) && !self.global.contains(span.text()),
            Expr::String { .. }
            | Expr::RawString { .. }
            | Expr::Number { .. }
            | Expr::Bool { .. }
            | Expr::Null { .. }
            | Expr::ArrayCompr { .. }
            | Expr::SetCompr { .. }
            | Expr::ObjectCompr { .. } => true,
            Expr::UnaryExpr { expr, .. } => matches!(&**expr, Expr::Number { .. }),
            Expr::Array { .. } | Expr::Set { .. } | Expr::Object { .. } => {
                let parts = syntax::parts(expr).exprs;
                parts.into_iter().all(|part| self.is_defined(part, bound))
            }
            Expr::Call { .. }
            | Expr::RefDot { .. }
            | Expr::RefBrack { .. }
            | Expr::BinExpr { .. }
            | Expr::BoolExpr { .. }
            | Expr::ArithExpr { .. }
            | Expr::AssignExpr { .. }
            | Expr::Membership { .. } => false,
        }
    }

    /// `data.x[1]` finds the key `"1"` for the engine, and does not in OPA.
    fn data_reference(&mut self, expr: &'a Expr, bound: &BTreeSet<&'a str>) {
        let Some(path) = fixed_start(expr).filter(|path| path.first().is_some_and(|root| root == "data")) else {
            return;
        };
        let steps = syntax::steps(expr);
        let mut dynamic = steps.iter().filter_map(Step::index);
        let iterates = |index: &Expr| {
            let names = variables(index);
            !names.is_empty() && names.iter().all(|name| !self.is_bound(name, bound))
        };
        if dynamic.all(iterates) {
            return;
        }
        let below = path.get(1..).unwrap_or_default();
        let is_rule = syntax::rules_below(self.rules, below).next().is_some()
            || (1..below.len()).any(|length| below.get(..length).is_some_and(|path| self.rules.contains_key(path)));
        let target = below.iter().try_fold(self.data, |at, part| at.get(part));
        if is_rule || target.is_some_and(has_number_as_key) {
            let name = path.join(".");
            let message = format!("`{name}[…]` would find a key such as \"1\" for the number 1");
            let hint = format!("write `import {name} as` with a name, and use that name");
            self.found
                .push(Diagnostic::error(start_of(expr), message).with_hint(hint));
        }
    }
}

fn has_number_as_key(data: &Json) -> bool {
    match data {
        Json::Object(fields) => fields
            .iter()
            .any(|(key, value)| key.parse::<f64>().is_ok() || has_number_as_key(value)),
        Json::Array(items) => items.iter().any(has_number_as_key),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => false,
    }
}

/// The names in an expression that is a pattern.
fn variables(pattern: &Expr) -> Vec<&str> {
    match pattern {
        Expr::Var { span, .. } => vec![span.text()],
        Expr::Array { .. } | Expr::Set { .. } | Expr::Object { .. } => {
            syntax::parts(pattern).exprs.into_iter().flat_map(variables).collect()
        }
        _ => Vec::new(),
    }
}

fn bind<'a>(pattern: &'a Expr, bound: &mut BTreeSet<&'a str>) {
    bound.extend(variables(pattern));
}

fn indices(reference: &Expr) -> impl Iterator<Item = &Expr> {
    syntax::steps(reference).into_iter().filter_map(|step| step.index())
}

/// The variables that an expression binds by iterating, outside of comprehensions.
fn bind_indices<'a>(expr: &'a Expr, bound: &mut BTreeSet<&'a str>) {
    if let Expr::RefBrack { index, .. } = expr {
        bind(index, bound);
    }
    let syntax::Parts { exprs, query } = syntax::parts(expr);
    if query.is_none() {
        exprs.into_iter().for_each(|part| bind_indices(part, bound));
    }
}

fn bind_statement<'a>(expr: &'a Expr, bound: &mut BTreeSet<&'a str>) {
    match expr {
        Expr::AssignExpr { op, lhs, rhs, .. } => {
            bind(lhs, bound);
            match op {
                AssignOp::ColEq => {}
                AssignOp::Eq => bind(rhs, bound),
            }
        }
        // One argument more than the function takes is its result.
        Expr::Call { fcn, params, .. } => {
            let arity = fixed_start(fcn).and_then(|path| builtins::arity(&path.join(".")));
            if let Some(last) = params.last().filter(|_| arity.is_none_or(|arity| arity < params.len())) {
                bind(last, bound);
            }
        }
        _ => {}
    }
    bind_indices(expr, bound);
}
