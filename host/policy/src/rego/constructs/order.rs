//! What can be a set or an object, as the engine orders the two otherwise than OPA.

use std::collections::{BTreeMap, BTreeSet};

use regorus::unstable::{ArithOp, AssignOp, Expr, Literal, Module, Query, Rule, RuleHead};
use serde_json::Value as Json;

use super::super::builtins;
use super::super::syntax::{self, Path, fixed_start};
use super::{Checker, indices, variables};
use crate::rego::schema;

/// Paths of rules and functions that are written as sets, or whose value is.
pub(super) fn sets(modules: &[Module]) -> BTreeSet<Path> {
    let is_set = |value: &Expr| match value {
        Expr::Set { .. } | Expr::SetCompr { .. } | Expr::BinExpr { .. } => true,
        Expr::Call { fcn, .. } => {
            let name = syntax::dotted(fcn);
            gives_set(&name) || builtins::arity(&name).is_none()
        }
        _ => false,
    };
    let is_of_set = |rule: &Rule| match rule {
        Rule::Default { value, .. } => is_set(value),
        Rule::Spec { head, bodies, .. } => {
            let assigned = bodies.iter().filter_map(|body| body.assign.as_ref());
            let assigned = assigned.map(|assign| &*assign.value);
            matches!(head, RuleHead::Set { .. }) || syntax::head_parts(head).2.into_iter().chain(assigned).any(is_set)
        }
    };
    let rules = modules.iter().flat_map(|module| {
        let package = syntax::package(module);
        let rules = module.policy.iter().filter(|rule| is_of_set(rule));
        rules
            .map(move |rule| syntax::rule_path(&package, rule))
            .collect::<Vec<_>>()
    });
    rules.collect()
}

/// Whether a function gives a set, whatever it takes.
fn gives_set(function: &str) -> bool {
    matches!(function, "union" | "intersection" | "object.keys")
}

/// Whether an expression is a number, text, boolean or null by its form.
fn is_scalar_form(expr: &Expr) -> bool {
    matches!(
        expr,
        Expr::String { .. }
            | Expr::RawString { .. }
            | Expr::Number { .. }
            | Expr::Bool { .. }
            | Expr::Null { .. }
            | Expr::UnaryExpr { .. }
            | Expr::BoolExpr { .. }
            | Expr::Membership { .. }
    )
}

/// Variables that stand for one another are followed so far.
const MAX_STEPS: usize = 12;

/// What gives the variables of a rule their values; none for an argument.
#[derive(Default)]
pub(super) struct Types<'a> {
    origins: BTreeMap<&'a str, Vec<Option<&'a Expr>>>,
    /// The collections of variables that stand for their elements.
    collections: BTreeMap<&'a str, &'a Expr>,
}

impl<'a> Types<'a> {
    pub(super) fn of(rule: &'a Rule) -> Self {
        let mut types = Self::default();
        let Rule::Spec { head, bodies, .. } = rule else {
            return types;
        };
        let (name, arguments, value) = syntax::head_parts(head);
        if let RuleHead::Func { .. } = head {
            arguments.iter().for_each(|argument| types.add(argument, None));
        }
        for head in value.into_iter().chain(indices(name)) {
            types.expr(head);
        }
        for body in bodies {
            types.query(&body.query);
            if let Some(assign) = &body.assign {
                types.expr(&assign.value);
            }
        }
        types
    }

    fn add(&mut self, pattern: &'a Expr, origin: Option<&'a Expr>) {
        for name in variables(pattern) {
            self.origins.entry(name).or_default().push(origin);
        }
    }

    fn query(&mut self, query: &'a Query) {
        for statement in &query.stmts {
            match &statement.literal {
                Literal::SomeVars { .. } => {}
                Literal::SomeIn {
                    key, value, collection, ..
                } => {
                    for pattern in key.iter().chain([value]) {
                        self.add(pattern, Some(collection));
                    }
                    if let Expr::Var { span, .. } = &**value {
                        self.collections.insert(span.text(), collection);
                    }
                    self.expr(collection);
                }
                Literal::Expr { expr, .. } | Literal::NotExpr { expr, .. } => self.expr(expr),
                Literal::Every {
                    key,
                    value,
                    domain,
                    query,
                    ..
                } => {
                    for name in key.iter().chain([value]) {
                        self.origins.entry(name.text()).or_default().push(Some(domain));
                    }
                    self.collections.insert(value.text(), domain);
                    self.expr(domain);
                    self.query(query);
                }
            }
        }
    }

    fn expr(&mut self, expr: &'a Expr) {
        match expr {
            Expr::AssignExpr { op, lhs, rhs, .. } => {
                self.add(lhs, Some(rhs));
                if *op == AssignOp::Eq {
                    self.add(rhs, Some(lhs));
                }
            }
            Expr::RefBrack { refr, index, .. } => self.add(index, Some(refr)),
            Expr::Call { params, .. } => {
                // The last can be the result.
                if let Some(last) = params.last().filter(|last| matches!(last.as_ref(), Expr::Var { .. }))
                    && !self.origins.contains_key(last.span().text())
                {
                    self.add(last, None);
                }
            }
            _ => {}
        }
        let syntax::Parts { exprs, query } = syntax::parts(expr);
        exprs.into_iter().for_each(|part| self.expr(part));
        query.into_iter().for_each(|query| self.query(query));
    }

    /// Whether one side can have a set where the other has an object.
    pub(super) fn order_is_unclear(&self, checker: &Checker<'_>, lhs: &Expr, rhs: &Expr) -> bool {
        let scalar = |side| self.is_scalar(checker, side, 0);
        let holds_set = |side| self.holds_set(checker, side, 0);
        let is_flat_set = |side: &Expr| self.is_flat_set(checker, side, 0);
        !scalar(lhs) && !scalar(rhs) && (holds_set(lhs) || holds_set(rhs)) && !(is_flat_set(lhs) && is_flat_set(rhs))
    }

    /// The collection of which a variable is an element, if that alone gives it its value.
    pub(super) fn list_of(&self, name: &str) -> Option<&'a Expr> {
        let is_only = self.origins(name).is_some_and(|origins| origins.len() == 1);
        self.collections.get(name).copied().filter(|_| is_only)
    }

    fn origins(&self, name: &str) -> Option<&[Option<&'a Expr>]> {
        self.origins.get(name).map(Vec::as_slice)
    }

    /// Whether an expression is a number, text, boolean or null.
    fn is_scalar(&self, checker: &Checker<'_>, expr: &Expr, steps: usize) -> bool {
        if steps > MAX_STEPS {
            return false;
        }
        let scalar = |part: &Expr| self.is_scalar(checker, part, steps + 1);
        match expr {
            expr if is_scalar_form(expr) => true,
            Expr::ArithExpr { op, lhs, rhs, .. } => *op != ArithOp::Sub || scalar(lhs) || scalar(rhs),
            Expr::Call { fcn, .. } => builtins::gives_scalar(&syntax::dotted(fcn)),
            Expr::Var { span, .. } if !checker.global.contains(span.text()) => {
                // A scalar has no items, so what is scalar is the value itself.
                let origins = self.origins(span.text()).unwrap_or_default();
                !origins.is_empty() && origins.iter().all(|origin| origin.is_some_and(scalar))
            }
            Expr::Var { .. } | Expr::RefDot { .. } | Expr::RefBrack { .. } => {
                let Some(path) = fixed_start(expr).filter(|_| indices(expr).next().is_none()) else {
                    return false;
                };
                match path.split_first() {
                    Some((root, below)) if root == "input" => schema::is_scalar(checker.schema, below),
                    Some((root, below)) if root == "data" && !checker.is_rule(below) => {
                        let value = below.iter().try_fold(checker.data, |at, part| at.get(part));
                        value.is_some_and(|value| !matches!(value, Json::Array(_) | Json::Object(_)))
                    }
                    _ => false,
                }
            }
            _ => false,
        }
    }

    /// Whether an expression is a set without sets in it.
    fn is_flat_set(&self, checker: &Checker<'_>, expr: &Expr, steps: usize) -> bool {
        if steps > MAX_STEPS {
            return false;
        }
        match expr {
            Expr::Set { .. } | Expr::SetCompr { .. } => {
                let parts = syntax::parts(expr).exprs;
                !parts.into_iter().any(|part| self.holds_set(checker, part, steps + 1))
            }
            Expr::BinExpr { lhs, rhs, .. } => [lhs, rhs]
                .into_iter()
                .all(|side| self.is_flat_set(checker, side, steps + 1)),
            _ => false,
        }
    }

    /// Whether a value can be a set or have one in it.
    fn holds_set(&self, checker: &Checker<'_>, expr: &Expr, steps: usize) -> bool {
        if steps > MAX_STEPS {
            return true;
        }
        let rule = || {
            let path = fixed_start(if let Expr::Call { fcn, .. } = expr { fcn } else { expr }).unwrap_or_default();
            let import = |name: &str| checker.imports.get(name);
            let full = syntax::resolve(checker.package, import, &path).unwrap_or_default();
            checker
                .sets
                .iter()
                .any(|set| full.starts_with(set) || set.starts_with(&full))
        };
        let holds = |part: &Expr| self.holds_set(checker, part, steps + 1);
        match expr {
            expr if is_scalar_form(expr) => false,
            Expr::ArithExpr { .. } => !self.is_scalar(checker, expr, steps),
            Expr::Array { .. } | Expr::Object { .. } | Expr::ArrayCompr { .. } | Expr::ObjectCompr { .. } => {
                syntax::parts(expr).exprs.into_iter().any(holds)
            }
            Expr::Call { fcn, .. } => {
                let name = syntax::dotted(fcn);
                match builtins::arity(&name) {
                    Some(_) if builtins::gives_scalar(&name) => false,
                    Some(_) => gives_set(&name) || syntax::parts(expr).exprs.into_iter().any(holds),
                    None => rule(),
                }
            }
            Expr::Var { span, .. } if !checker.global.contains(span.text()) => {
                let origins = self.origins(span.text()).unwrap_or_default();
                origins.iter().any(|origin| origin.is_some_and(holds))
            }
            Expr::Var { .. } | Expr::RefDot { .. } | Expr::RefBrack { .. } => {
                let base = syntax::base(expr);
                match base {
                    Expr::Var { span, .. } if span.text() == "input" => false,
                    Expr::Var { span, .. } if checker.global.contains(span.text()) => rule(),
                    base => holds(base),
                }
            }
            // Sets, and what is not known.
            _ => true,
        }
    }
}
