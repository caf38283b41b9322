//! Heads of rules, and names of several files, that the engine evaluates otherwise than OPA.

use std::collections::{BTreeMap, BTreeSet};

use regorus::unstable::{Expr, Literal, Module, Query, Rule, RuleBody, RuleHead};

use super::{Bound, Checker, bind, indices};
use crate::syntax::{self, Path, fixed_start, start_of};
use tollgate_core::diagnostic::{Diagnostic, Location};

/// What the heads of all modules say about names.
pub(super) struct Names {
    /// Rules with a default.
    defaults: BTreeSet<Path>,
    /// Rules that are `{}` for OPA while they have no entry, and undefined for the engine.
    open: BTreeSet<Path>,
    /// The package of each file, and whether its rules may need other rules.
    packages: Vec<(Path, bool)>,
}

impl Names {
    pub(super) fn of(modules: &[Module]) -> Self {
        let (mut defaults, mut open, mut closed) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for module in modules {
            let package = syntax::package(module);
            for rule in &module.policy {
                let path = syntax::rule_path(&package, rule);
                match &**rule {
                    Rule::Default { .. } => defaults.insert(path),
                    Rule::Spec { head, .. } if is_open(head) => open.insert(path),
                    Rule::Spec { .. } => closed.insert(path),
                };
            }
        }
        open.retain(|path| !closed.contains(path));
        let rules = modules.iter().flat_map(|module| &module.policy);
        let mut known: BTreeSet<&str> = rules
            .map(|rule| syntax::base(syntax::head_of(rule)).span().text())
            .collect();
        known.insert("data");
        Self {
            defaults,
            open,
            packages: modules
                .iter()
                .map(|module| (syntax::package(module), needs_rules(module, &known)))
                .collect(),
        }
    }

    /// Whether a path below `data` is that of a package, or of several, of more than one file, whose rules the
    /// engine does not evaluate when it comes to the second.
    fn has_several_files(&self, path: &[String]) -> bool {
        let mut files = self.packages.iter().filter(|(package, _)| package.starts_with(path));
        files.clone().count() > 1 && files.any(|(_, needs_rules)| *needs_rules)
    }
}

/// Whether a rule of a file may need another one: it has a name of one, or what is below `data`, or calls what is
/// no built-in function.
///
/// - `known`: the first names of all rules.
fn needs_rules(module: &Module, known: &BTreeSet<&str>) -> bool {
    !module.imports.is_empty() || module.policy.iter().any(|rule| names_one(rule, known))
}

/// Whether a rule has entries below entries: `p[x].q`, `p[x][y]`, `p[x] contains y`.
fn is_open(head: &RuleHead) -> bool {
    let (refr, _, _) = syntax::head_parts(head);
    let steps = syntax::steps(refr);
    let first = steps.iter().position(|step| step.index().is_some());
    first.is_some_and(|first| matches!(head, RuleHead::Set { .. }) || first + 1 < steps.len())
}

/// Functions that more than one file defines. The engine runs all definitions with the tables of the first.
pub(super) fn functions_of_several_files(modules: &[Module]) -> Vec<Diagnostic> {
    let mut first = BTreeMap::new();
    let mut found = Vec::new();
    for (file, module) in modules.iter().enumerate() {
        let package = syntax::package(module);
        for rule in &module.policy {
            let is_function = match &**rule {
                Rule::Spec { .. } => syntax::arity(rule).is_some(),
                Rule::Default { args, .. } => !args.is_empty(),
            };
            let path = syntax::rule_path(&package, rule);
            if is_function && *first.entry(path).or_insert(file) != file {
                let message = "the function is defined in another file, too";
                let hint = "keep all of its definitions in one file";
                found.push(Diagnostic::error(syntax::location(rule.span()), message).with_hint(hint));
            }
        }
    }
    found
}

impl<'a> Checker<'a> {
    /// - `arguments`: those of a function.
    pub(super) fn head(&mut self, rule: &'a Rule, arguments: &Bound<'a>) {
        let refr = syntax::head_of(rule);
        let path = syntax::rule_path(self.package, rule);
        let Rule::Spec { head, bodies, .. } = rule else {
            if has_brackets(refr) {
                self.refuse(
                    refr,
                    "the default of a name with brackets is never used",
                    "write `a.b` for `a[\"b\"]`",
                );
            }
            return;
        };
        let has_else = bodies.iter().any(|body| body.is_else);
        let is_quoted = has_brackets(refr) && indices(refr).next().is_none();
        if has_raw_text(refr) || (is_quoted && (has_else || self.names.defaults.contains(&path))) {
            let message = "a name with brackets is taken for a part of another rule";
            self.refuse(refr, message, "write `a.b` for `a[\"b\"]`");
        }
        let (_, _, value) = syntax::head_parts(head);
        if has_else {
            self.value_of_alternatives(value, bodies);
        }
        if matches!(head, RuleHead::Func { .. }) {
            return;
        }
        for body in bodies {
            let bound = self.bound_by(&body.query, arguments);
            let given = syntax::value_of(body, value);
            let heads: Vec<&'a Expr> = given.into_iter().chain(indices(refr)).collect();
            if !repeats(&body.query, &heads) {
                continue;
            }
            if let Some(unclear) = heads.into_iter().find(|head| !self.is_defined(head, &bound)) {
                let message = "a part of the head may have no value, and then what other solutions give is lost";
                self.refuse(unclear, message, "give the part a name in the body, with `:=`");
            }
        }
    }

    /// The engine plans a value once for all alternatives, and takes an `else` without a value for none.
    fn value_of_alternatives(&mut self, value: Option<&'a Expr>, bodies: &'a [RuleBody]) {
        let assigned = bodies.iter().filter_map(|body| body.assign.as_ref());
        let values = value.into_iter().chain(assigned.map(|assign| &*assign.value));
        if let Some(looped) = values.into_iter().find_map(looped) {
            let message = "a value with an index or a comprehension has another meaning before or after `else`";
            self.refuse(looped, message, "give it a name in the body, with `:=`");
        }
        let is_true = |value: &Expr| matches!(value, Expr::Bool { span, .. } if span.text() == "true");
        let lacks_value = bodies.iter().find(|body| body.is_else && body.assign.is_none());
        if let Some(body) = lacks_value.filter(|_| value.is_some_and(|value| !is_true(value))) {
            let message = "an `else` without a value is not true for the engine";
            self.report(syntax::location(&body.span), message, "write `else := true`");
        }
    }

    /// A name that is all of something whose parts the engine evaluates apart. True if it is refused.
    pub(super) fn whole(&mut self, expr: &'a Expr, full: &Path) -> bool {
        let is_whole = indices(expr).next().is_none();
        if is_whole && self.names.open.contains(full) {
            let message = "the rule has no value for the engine while it has no entry, and `{}` for OPA";
            self.refuse(
                expr,
                message,
                "name one of its entries, or use a rule `p[key] := value`",
            );
            return true;
        }
        let is_package = !full.is_empty() && !self.rules.contains_key(full) && self.names.has_several_files(full);
        if is_package {
            let message = "this is a package of several files, or has packages below it";
            self.refuse(expr, message, "name one of its rules");
        }
        is_package
    }

    /// Refuses what a decision can need.
    pub(super) fn refuse(&mut self, expr: &Expr, message: &str, hint: &str) {
        if self.is_reached {
            self.report(start_of(expr), message, hint);
        }
    }

    pub(super) fn report(&mut self, at: Location, message: impl Into<String>, hint: impl Into<String>) {
        self.found.push(Diagnostic::error(at, message).with_hint(hint));
    }
}

fn has_brackets(refr: &Expr) -> bool {
    match refr {
        Expr::RefBrack { .. } => true,
        Expr::RefDot { refr, .. } => has_brackets(refr),
        _ => false,
    }
}

fn has_raw_text(refr: &Expr) -> bool {
    match refr {
        Expr::RefBrack { refr, index, .. } => matches!(**index, Expr::RawString { .. }) || has_raw_text(refr),
        Expr::RefDot { refr, .. } => has_raw_text(refr),
        _ => false,
    }
}

/// The first index or comprehension of a value.
fn looped(value: &Expr) -> Option<&Expr> {
    let syntax::Parts { exprs, query } = syntax::parts(value);
    if query.is_some() || matches!(value, Expr::RefBrack { index, .. } if syntax::text(index).is_none()) {
        return Some(value);
    }
    exprs.into_iter().find_map(looped)
}

/// Whether a query can have several solutions, counting what its heads iterate.
fn repeats(query: &Query, heads: &[&Expr]) -> bool {
    let mut assigned = Bound::new();
    for statement in &query.stmts {
        if let Literal::Expr { expr, .. } = &statement.literal
            && let Expr::AssignExpr { lhs, .. } = &**expr
        {
            bind(lhs, &mut assigned);
        }
    }
    let iterates = |literal: &Literal| match literal {
        Literal::SomeVars { .. } | Literal::SomeIn { .. } => true,
        Literal::Expr { expr, .. } => has_loop(expr, &assigned),
        Literal::NotExpr { .. } | Literal::Every { .. } => false,
    };
    query.stmts.iter().any(|statement| iterates(&statement.literal))
        || heads.iter().any(|head| has_loop(head, &assigned))
}

/// Whether an expression, outside of comprehensions, has an index that is no literal and no variable of `assigned`.
fn has_loop(expr: &Expr, assigned: &Bound<'_>) -> bool {
    if let Expr::RefBrack { index, .. } = expr
        && syntax::text(index).is_none()
    {
        let is_known = match &**index {
            Expr::Number { .. } => true,
            Expr::Var { span, .. } => assigned.contains_key(span.text()),
            other => fixed_start(other).is_some_and(|path| path.first().is_some_and(|name| name == "input")),
        };
        if !is_known {
            return true;
        }
    }
    let syntax::Parts { exprs, query } = syntax::parts(expr);
    query.is_none() && exprs.into_iter().any(|part| has_loop(part, assigned))
}

fn names_one(rule: &Rule, known: &BTreeSet<&str>) -> bool {
    let Rule::Spec { head, bodies, .. } = rule else {
        return false;
    };
    let (refr, arguments, value) = syntax::head_parts(head);
    let indices = indices(refr)
        .chain(value)
        .chain(arguments.iter().map(|argument| &**argument));
    let mut assigned = bodies.iter().filter_map(|body| body.assign.as_ref());
    indices.into_iter().any(|expr| has_name(expr, known))
        || assigned.any(|assign| has_name(&assign.value, known))
        || bodies.iter().any(|body| query_has_name(&body.query, known))
}

fn query_has_name(query: &Query, known: &BTreeSet<&str>) -> bool {
    query.stmts.iter().any(|statement| {
        let is_within = match &statement.literal {
            Literal::Every { query, .. } => query_has_name(query, known),
            _ => false,
        };
        is_within || syntax::evaluated(&statement.literal).is_some_and(|expr| has_name(expr, known))
    })
}

/// Whether an expression has one of the names, or calls a function of the policy.
fn has_name(expr: &Expr, known: &BTreeSet<&str>) -> bool {
    let is_one = match expr {
        Expr::Var { span, .. } => known.contains(span.text()),
        Expr::Call { fcn, .. } => !crate::builtins::exists(&syntax::dotted(fcn)),
        _ => false,
    };
    let syntax::Parts { exprs, query } = syntax::parts(expr);
    is_one
        || exprs.into_iter().any(|part| has_name(part, known))
        || query.is_some_and(|query| query_has_name(query, known))
}
