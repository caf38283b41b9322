//! Refuses what the engine evaluates otherwise than OPA does, by name, and says what to write instead.
//!
//! Security: each of these can turn a denial into an allow. docs/decisions/rego-differences.md has the cause
//! of each in the engine.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use regorus::unstable::{AssignOp, BinOp, BoolOp, Expr, Literal, Module, Query, Rule, RuleHead};
use serde_json::Value as Json;

use crate::functions::numbers;
use crate::functions::opa::can_be_undefined;
use crate::growth::variables::RuleVariables;
use crate::syntax::{self, Path, Step, fixed_start, start_of};
use crate::{builtins, operators, schema};
use tollgate_core::diagnostic::{Diagnostic, Location};

mod elements;
mod heads;
mod order;
mod positions;
mod safety;

use elements::Elements;
use heads::Names;
use positions::is_position;

struct Head {
    /// Names in the path of its package.
    package: usize,
    location: Location,
}

/// Checks all modules together with the tree of the data files.
///
/// - `reached`: the rules that a decision can need; all of them when absent.
/// - `schema`: JSON Schema of `input`. What it requires is in every input.
pub(crate) fn check(
    modules: &[Module],
    reached: Option<&BTreeSet<Path>>,
    data: &Json,
    schema: &Json,
) -> Vec<Diagnostic> {
    let rules: BTreeMap<Path, Head> = modules
        .iter()
        .flat_map(|module| {
            let package = syntax::package(module);
            let rules = module.policy.iter();
            rules.map(move |rule| {
                let head = Head {
                    package: package.len(),
                    location: syntax::location(rule.span()),
                };
                (syntax::rule_path(&package, rule), head)
            })
        })
        .collect();
    let (imports, no_imports) = (syntax::imports(modules), BTreeMap::new());
    let packages = operators::packages(modules);
    let functions = functions(modules);
    let total = rules_with_a_value(modules);
    let names = Names::of(modules);
    let mut found = hidden_by_data(&rules, data);
    found.extend(reserved(modules));
    found.extend(heads::functions_of_several_files(modules));
    found.extend(numbers_in_data(data));
    for module in modules {
        let package = syntax::package(module);
        let imports = imports.get(&package).unwrap_or(&no_imports);
        let imported = imports.keys();
        let own = syntax::rules_below(&rules, &package).filter_map(|(path, _)| path.get(package.len()));
        let mut checker = Checker {
            rules: &rules,
            packages: &packages,
            package: &package,
            imports,
            data,
            schema,
            elements: Elements::default(),
            variables: RuleVariables::default(),
            functions: &functions,
            steps: Cell::new(positions::MAX_STEPS),
            total: &total,
            names: &names,
            is_reached: true,
            global: imported
                .chain(own)
                .map(String::as_str)
                .chain(["input", "data"])
                .collect(),
            found: &mut found,
        };
        for rule in &module.policy {
            checker.is_reached = reached.is_none_or(|rules| rules.contains(&syntax::rule_path(&package, rule)));
            checker.rule(rule);
        }
        let future = module.imports.iter().filter(|import| {
            let path = fixed_start(&import.refr).unwrap_or_default();
            let path: Vec<&str> = path.iter().map(String::as_str).collect();
            matches!(path.as_slice(), ["future", "keywords"] | ["future", "keywords", "not"])
        });
        found.extend(future.map(|import| {
            let message = "`import future.keywords` brings keywords that are not supported";
            let hint = "remove it: `if`, `in`, `every` and `contains` are there without";
            Diagnostic::error(syntax::location(&import.span), message).with_hint(hint)
        }));
    }
    found
}

/// The number of arguments of each function of the modules.
fn functions(modules: &[Module]) -> BTreeMap<Path, usize> {
    let functions = modules.iter().flat_map(|module| {
        let package = syntax::package(module);
        let rules = module.policy.iter();
        rules.filter_map(move |rule| Some((syntax::rule_path(&package, rule), syntax::arity(rule)?)))
    });
    functions.collect()
}

/// Paths of rules that have a value for every input: those with a default, sets, literals and comprehensions.
fn rules_with_a_value(modules: &[Module]) -> BTreeSet<Path> {
    let has_a_value = |rule: &Rule| match rule {
        Rule::Default { args, .. } => args.is_empty(),
        Rule::Spec {
            head: RuleHead::Set { refr, .. },
            ..
        } => indices(refr).next().is_none(),
        Rule::Spec {
            head:
                RuleHead::Compr {
                    refr,
                    assign: Some(assign),
                    ..
                },
            bodies,
            ..
        } => bodies.is_empty() && indices(refr).next().is_none() && is_independent(&assign.value),
        Rule::Spec { .. } => false,
    };
    let rules = modules.iter().flat_map(|module| {
        let package = syntax::package(module);
        let rules = module.policy.iter().filter(|rule| has_a_value(rule));
        rules.map(move |rule| syntax::rule_path(&package, rule))
    });
    rules.collect()
}

/// Rules that a data file has a value for. The engine would take the value and not ask the rule.
fn hidden_by_data(rules: &BTreeMap<Path, Head>, data: &Json) -> Vec<Diagnostic> {
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
    let finding = |(path, head): (&Path, &Head)| {
        let message = format!("a data file has a value for the rule `data.{}`", path.join("."));
        Diagnostic::error(head.location.clone(), message).with_hint("give the data file or the package another name")
    };
    hidden.map(finding).collect()
}

/// Variables, with the number of places that can bind them.
type Bound<'a> = BTreeMap<&'a str, usize>;

/// Where the value of an expression goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Position {
    /// It is a condition: false and undefined are the same.
    Condition,
    Value,
}

struct Checker<'a> {
    rules: &'a BTreeMap<Path, Head>,
    packages: &'a BTreeSet<Path>,
    package: &'a [String],
    imports: &'a BTreeMap<String, Path>,
    data: &'a Json,
    schema: &'a Json,
    elements: Elements<'a>,
    /// The variables of the current rule.
    variables: RuleVariables<'a>,
    /// The number of arguments of each function, by its path.
    functions: &'a BTreeMap<Path, usize>,
    /// Steps that are left to look for what an index can be.
    steps: Cell<u64>,
    /// Rules that have a value for every input.
    total: &'a BTreeSet<Path>,
    names: &'a Names,
    /// Whether a decision can need the current rule.
    is_reached: bool,
    /// Names of the package that are no variables.
    global: BTreeSet<&'a str>,
    found: &'a mut Vec<Diagnostic>,
}

impl<'a> Checker<'a> {
    fn rule(&mut self, rule: &'a Rule) {
        let (head, bodies) = match rule {
            Rule::Default { value, .. } => {
                self.head(rule, &Bound::new());
                return self.expr(value, Position::Value, &Bound::new());
            }
            Rule::Spec { head, bodies, .. } => (head, bodies),
        };
        self.elements = Elements::of(rule);
        self.variables = RuleVariables::collect(rule, &|function| self.arity(function));
        let mut arguments = Bound::new();
        let (name, _, value) = syntax::head_parts(head);
        if let RuleHead::Func { args, .. } = head {
            args.iter().for_each(|argument| {
                bind(argument, &mut arguments);
                self.pattern(argument);
            });
            for (at, body) in bodies.iter().enumerate() {
                let is_before_else = bodies.get(at + 1).is_some_and(|next| next.is_else);
                // Without a value in its head, the function is true for the engine where that of an `else` is undefined.
                let is_true_without = body.is_else && value.is_none();
                if let Some(given) = syntax::value_of(body, value).filter(|_| is_before_else || is_true_without) {
                    self.value_with_else(given, &body.query, &arguments);
                }
            }
        }
        self.head(rule, &arguments);
        if self.is_reached {
            let mut found = Vec::new();
            order::check(rule, &self.global, &|function| self.arity(function), &mut found);
            self.found.append(&mut found);
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

    /// The number of arguments of the function with that name, if it is known.
    fn arity(&self, function: &Expr) -> Option<usize> {
        let path = fixed_start(function)?;
        let full = syntax::resolve(self.package, |name| self.imports.get(name), &path);
        let own = full.and_then(|full| self.functions.get(&full).copied());
        own.or_else(|| builtins::arity(&path.join(".")))
    }

    /// A function whose value is undefined has no value for the engine, and goes on with `else` in OPA.
    fn value_with_else(&mut self, value: &'a Expr, query: &'a Query, arguments: &Bound<'a>) {
        if self.is_defined(value, &self.bound_by(query, arguments)) {
            return;
        }
        let message = "the value of a function with `else` must be a literal or a variable";
        let hint = "give it a name in the body, with `:=`";
        self.report(start_of(value), message, hint);
    }

    /// The variables that are bound in a query.
    fn bound_by(&self, query: &'a Query, outer: &Bound<'a>) -> Bound<'a> {
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
    fn query(&mut self, query: &'a Query, heads: &[&'a Expr], outer: &Bound<'a>) {
        let bound = self.bound_by(query, outer);
        for (at, statement) in query.stmts.iter().enumerate() {
            match &statement.literal {
                Literal::SomeVars { .. } => {}
                Literal::SomeIn {
                    key, value, collection, ..
                } => {
                    match &**collection {
                        Expr::Array { items, .. } | Expr::Set { items, .. } => {
                            key.iter().for_each(|pattern| self.pattern(pattern));
                            items
                                .iter()
                                .for_each(|item| self.unification(value, item, false, &bound));
                        }
                        other => {
                            let is_exact = key.iter().chain([value]).all(|pattern| can_be_exact(pattern));
                            if !(is_exact && operators::can_be_wrapped(other)) {
                                key.iter().chain([value]).for_each(|pattern| self.pattern(pattern));
                            }
                        }
                    }
                    for expr in key.iter().chain([value, collection]) {
                        self.expr(expr, Position::Value, &bound);
                    }
                }
                Literal::Expr { expr, .. } => {
                    self.statement(expr, at == 0);
                    let is_variable = |result: &&Expr| matches!(result, Expr::Var { .. } | Expr::Bool { .. });
                    self.result(own_result(expr).filter(|result| !is_variable(result)));
                    self.expr(expr, Position::Condition, &bound);
                }
                Literal::NotExpr { expr, .. } => {
                    let findings = self.found.len();
                    // The body of a comprehension that is `not true` is true for OPA if its value has a reference.
                    if operators::is_literal(expr) {
                        self.refuse(expr, "`not` of a literal", "leave the statement out, or write `false`");
                    }
                    self.result(own_result(expr));
                    self.negated(expr, &bound);
                    // One finding is enough for one `not`.
                    if self.found.len() == findings {
                        self.outside_of_negation(expr, &bound);
                    }
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
                    key.iter()
                        .chain([value])
                        .for_each(|name| *inner.entry(name.text()).or_default() += 1);
                    self.query(query, &[], &inner);
                    let unifies = query.stmts.iter().find_map(|statement| unification(&statement.literal));
                    self.found.extend(unifies.map(|at| {
                        let message = "`=` within `every` is always true for the engine";
                        Diagnostic::error(start_of(at), message).with_hint("write `==`, or `:=` for a new variable")
                    }));
                }
            }
        }
        for head in heads {
            self.found.extend(unification_in(head).map(|at| {
                let message = "`=` in the value of a rule or comprehension takes its variables for new ones";
                Diagnostic::error(start_of(at), message).with_hint("write `==`, or `:=` for a new variable")
            }));
            self.expr(head, Position::Value, &bound);
        }
    }

    /// `{ a | b == c }` is a comprehension for OPA, and a body for the engine; `else := 1 if { a | b }` the
    /// other way round.
    fn statement(&mut self, expr: &'a Expr, is_first: bool) {
        if matches!(expr, Expr::SetCompr { .. }) || (is_first && begins_with_union(expr)) {
            let message = "a body that is a comprehension, or begins with a union, is unclear";
            self.refuse(expr, message, "give the union a name first, with `:=`");
        }
    }

    /// Refuses what is to take the result of a call.
    fn result(&mut self, result: Option<&'a Expr>) {
        self.found.extend(result.map(|result| {
            let message = "the result of this function can be taken only by a variable, and not within `not`";
            let hint = "write `x := function(…)`";
            Diagnostic::error(syntax::location(result.span()), message).with_hint(hint)
        }));
    }

    /// Refuses objects in what gives variables their values: for the engine, they are parts of objects.
    fn pattern(&mut self, pattern: &'a Expr) {
        match pattern {
            Expr::Object { .. } => {
                let message = "an object that gives variables their values matches larger objects, too";
                self.refuse(pattern, message, "take its fields: `x := object.field`");
            }
            Expr::Array { .. } | Expr::Set { .. } => {
                syntax::parts(pattern)
                    .exprs
                    .into_iter()
                    .for_each(|part| self.pattern(part));
            }
            _ => {}
        }
    }

    /// The two sides of `=`. An object matches one that is written out with the same keys.
    ///
    /// - `is_whole`: whether they are all of the statement, in which the operator for exact keys stands.
    fn unification(&mut self, one: &'a Expr, other: &'a Expr, is_whole: bool, bound: &Bound<'a>) {
        let is_new = |side: &Expr| match side {
            Expr::Var { span, .. } => {
                let is_bound = bound.get(span.text()).is_some_and(|places| *places > 1);
                !is_bound && !self.global.contains(span.text())
            }
            _ => false,
        };
        if is_new(one) || is_new(other) {
            return;
        }
        if let Some(parts) = matching_parts(one, other) {
            return parts
                .into_iter()
                .for_each(|(one, other)| self.unification(one, other, false, bound));
        }
        // What binds nothing is compared as a whole, and what has a name is checked for its keys.
        for (side, other) in [(one, other), (other, one)] {
            let is_exact = is_whole && operators::is_reference(other) && can_be_exact(side);
            if self.binds(side) && !is_exact {
                self.pattern(side);
            }
        }
    }

    /// Whether a variable stands where a pattern would give it a value: not as a key of an object.
    fn binds(&self, pattern: &Expr) -> bool {
        match pattern {
            Expr::Var { span, .. } => !self.global.contains(span.text()),
            Expr::Object { fields, .. } => fields.iter().any(|(_, _, value)| self.binds(value)),
            Expr::Array { items, .. } | Expr::Set { items, .. } => items.iter().any(|item| self.binds(item)),
            _ => false,
        }
    }

    fn expr(&mut self, expr: &'a Expr, position: Position, bound: &Bound<'a>) {
        match expr {
            Expr::AssignExpr { op, lhs, rhs, .. } => match op {
                AssignOp::ColEq => self.pattern(lhs),
                AssignOp::Eq => self.unification(lhs, rhs, true, bound),
            },
            Expr::Object { fields, .. }
                if fields.len() > operators::MAX_ENTRIES && operators::has_computed_keys(expr) =>
            {
                let message = format!(
                    "an object with {} entries has keys that are no literals, {} are allowed",
                    fields.len(),
                    operators::MAX_ENTRIES
                );
                self.report(syntax::location(expr.span()), message, "use a comprehension");
            }
            Expr::Membership {
                key, value, collection, ..
            } => {
                self.membership(key.as_deref(), value, collection, position, bound);
            }
            Expr::RefBrack { .. } | Expr::RefDot { .. } => {
                self.data_reference(expr, bound);
                self.prefix_of_rule(expr, bound);
                // What it indexes is a part of it.
                for index in indices(expr) {
                    self.expr(index, Position::Value, bound);
                }
                let base = syntax::base(expr);
                if operators::is_literal(base) {
                    self.refuse(
                        base,
                        "a literal that is no collection has no parts",
                        "index a collection",
                    );
                }
                if !matches!(base, Expr::Var { .. }) {
                    self.expr(base, Position::Value, bound);
                }
                return;
            }
            Expr::Var { .. } => self.prefix_of_rule(expr, bound),
            Expr::Call { fcn, .. } if !is_followed_by_arguments(fcn) => {
                let message = "what is in parentheses after a name is taken for its arguments";
                self.refuse(
                    fcn,
                    message,
                    "write them directly behind a function, and other conditions without parentheses",
                );
            }
            Expr::Number { span, .. } if span.text().contains(['e', 'E']) => {
                let message = format!("`{}` is a fraction for some functions of OPA", span.text());
                let hint = "write the number without an exponent";
                self.report(syntax::location(span), message, hint);
            }
            Expr::Number { span, .. } if numbers::read(span.text()).is_none() => {
                let message = format!("`{}` cannot be kept as it is written", span.text());
                let hint = "write a whole number without a point, and a fraction with at most 15 digits";
                self.report(syntax::location(span), message, hint);
            }
            Expr::UnaryExpr { span, .. } => {
                let message = "`-` before an expression negates all that follows for the engine";
                let hint = "subtract from zero: `0 - x`";
                self.report(syntax::location(span), message, hint);
            }
            Expr::Array { items, .. } | Expr::Set { items, .. } if items.first().is_some_and(|item| is_union(item)) => {
                self.union_in_literal(expr);
            }
            Expr::Object { fields, .. } if fields.first().is_some_and(|(_, _, value)| is_union(value)) => {
                self.union_in_literal(expr);
            }
            Expr::Object { fields, .. } => {
                let mut seen = BTreeSet::new();
                let twice = fields.iter().find(|(_, key, _)| !seen.insert(key_text(key)));
                self.found.extend(twice.map(|(_, key, _)| {
                    let message = "the object has the same key twice";
                    Diagnostic::error(start_of(key), message).with_hint("keep one of the entries")
                }));
            }
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

    /// `{a - b | c}` is a comprehension for OPA, and a set with one union for the engine.
    fn union_in_literal(&mut self, literal: &'a Expr) {
        let message = "`|` after the first item could start a comprehension";
        let hint = "give the union a name first, with `:=`";
        self.report(syntax::location(literal.span()), message, hint);
    }

    /// `not xs[_] == 1` means for the engine that some item is not 1. OPA refuses it.
    fn negated(&mut self, expr: &'a Expr, bound: &Bound<'a>) {
        let patterns: Vec<&Expr> = match expr {
            Expr::RefBrack { index, .. } => vec![index],
            Expr::AssignExpr { lhs, rhs, .. } => vec![lhs, rhs],
            _ => Vec::new(),
        };
        let mut in_patterns = patterns.into_iter().flat_map(names);
        if let Some(name) = in_patterns.find(|name| !self.is_bound(name, bound)) {
            let message = format!("`{name}` within `not` has no value there, so what is negated is unclear");
            let hint = "make the condition a rule or function and negate that, or use `every`";
            self.report(start_of(expr), message, hint);
            return;
        }
        let syntax::Parts { exprs, query } = syntax::parts(expr);
        if query.is_none() {
            exprs.into_iter().for_each(|part| self.negated(part, bound));
        }
    }

    /// OPA evaluates the operands of a negated call or operator before it negates: where one of them is
    /// undefined, the statement does not hold. For the engine it holds.
    fn outside_of_negation(&mut self, expr: &'a Expr, bound: &Bound<'a>) {
        let operands: Vec<&'a Expr> = match expr {
            Expr::BoolExpr {
                op: BoolOp::Eq,
                lhs,
                rhs,
                ..
            }
            | Expr::AssignExpr { lhs, rhs, .. } => vec![lhs, rhs],
            Expr::Call { .. }
            | Expr::BinExpr { .. }
            | Expr::ArithExpr { .. }
            | Expr::BoolExpr { .. }
            | Expr::UnaryExpr { .. }
            | Expr::Membership { .. } => {
                let operands = syntax::parts(expr).exprs.into_iter();
                let unclear = operands.into_iter().find(|operand| !self.is_defined(operand, bound));
                return self.found.extend(unclear.map(negated_operand));
            }
            _ => vec![expr],
        };
        for operand in operands {
            let unclear = match operand {
                // Of a reference itself it is negated that it has a value.
                Expr::Var { .. } => None,
                Expr::RefDot { .. } | Expr::RefBrack { .. } => {
                    let base = Some(syntax::base(operand)).filter(|base| !matches!(base, Expr::Var { .. }));
                    base.into_iter()
                        .chain(indices(operand))
                        .find(|part| !self.is_defined(part, bound))
                }
                operand => Some(operand).filter(|operand| !self.is_defined(operand, bound)),
            };
            self.found.extend(unclear.map(negated_operand));
        }
    }

    fn is_bound(&self, name: &str, bound: &Bound<'_>) -> bool {
        name != "_" && (bound.contains_key(name) || self.global.contains(name))
    }

    /// Whether a name is a variable that has a value, and no name of the package.
    fn is_variable(&self, name: &str, bound: &Bound<'_>) -> bool {
        bound.contains_key(name) && !self.global.contains(name)
    }

    /// `in` with a part that has no value is false for the engine and has no value in OPA. With a key,
    /// two missing values are equal for the engine.
    fn membership(
        &mut self,
        key: Option<&'a Expr>,
        value: &'a Expr,
        collection: &'a Expr,
        position: Position,
        bound: &Bound<'a>,
    ) {
        let is_defined = |part: &Expr| self.is_defined(part, bound);
        let (message, hint) = if key.is_some() && self.can_be_set(collection) {
            (
                "`key, value in …` is of what could be a set",
                "write `collection[key] == value`",
            )
        } else if key.is_some() && !is_defined(value) {
            let hint = "give the value a name first, with `:=`";
            ("the value of `key, value in …` must be a literal or a variable", hint)
        } else if position == Position::Value && !key.into_iter().chain([value, collection]).all(is_defined) {
            let hint = "write it as a condition, such as `name if x in xs`, or give the parts names first, with `:=`";
            (
                "`in` is used as a value, and its parts are not literals or variables",
                hint,
            )
        } else {
            return;
        };
        self.report(start_of(value), message, hint);
    }

    /// In a set a key is its value, which the engine does not know.
    fn can_be_set(&self, collection: &Expr) -> bool {
        match collection {
            Expr::Array { .. } | Expr::Object { .. } | Expr::ArrayCompr { .. } | Expr::ObjectCompr { .. } => false,
            _ => match fixed_start(collection).as_deref() {
                Some([root, ..]) if root == "input" => false,
                Some([root, below @ ..]) if root == "data" => {
                    self.is_rule(below) || below.iter().try_fold(self.data, |at, part| at.get(part)).is_none()
                }
                _ => true,
            },
        }
    }

    /// Whether a path below `data` leads to rules.
    fn is_rule(&self, below: &[String]) -> bool {
        syntax::rules_below(self.rules, below).next().is_some()
            || (1..below.len()).any(|length| below.get(..length).is_some_and(|path| self.rules.contains_key(path)))
    }

    /// Whether an expression has a value for every input.
    fn is_defined(&self, expr: &Expr, bound: &Bound<'_>) -> bool {
        match expr {
            Expr::Var { span, .. } if !self.global.contains(span.text()) => bound.contains_key(span.text()),
            Expr::Var { .. } | Expr::RefDot { .. } | Expr::RefBrack { .. } => {
                let path = fixed_start(expr).filter(|_| indices(expr).next().is_none());
                path.is_some_and(|path| match path.split_first() {
                    Some((name, below)) if self.is_variable(name, bound) => self.element_has(name, below),
                    _ => self.is_always_there(&path),
                })
            }
            Expr::String { .. }
            | Expr::RawString { .. }
            | Expr::Number { .. }
            | Expr::Bool { .. }
            | Expr::Null { .. }
            | Expr::ArrayCompr { .. }
            | Expr::SetCompr { .. }
            | Expr::ObjectCompr { .. } => true,
            Expr::Call { fcn, .. } if !self.gives_a_value(fcn) => false,
            // Without a value they fail.
            Expr::Array { .. }
            | Expr::Set { .. }
            | Expr::Object { .. }
            | Expr::Call { .. }
            | Expr::UnaryExpr { .. }
            | Expr::BinExpr { .. }
            | Expr::BoolExpr { .. }
            | Expr::ArithExpr { .. }
            | Expr::Membership { .. } => {
                let parts = syntax::parts(expr).exprs;
                parts.into_iter().all(|part| self.is_defined(part, bound))
            }
            Expr::AssignExpr { .. } => false,
        }
    }

    /// Whether a call of the function has a value or fails.
    fn gives_a_value(&self, function: &Expr) -> bool {
        let name = syntax::dotted(function);
        builtins::arity(&name).is_some() && !can_be_undefined(&name)
    }

    /// Whether a variable is an element of a list of the input, whose elements all have a value at the path.
    fn element_has(&self, name: &str, path: &[String]) -> bool {
        let list = self
            .elements
            .list_of(name)
            .filter(|list| indices(list).next().is_none());
        let list = list.and_then(fixed_start).unwrap_or_default();
        let in_input = list.split_first().filter(|(first, _)| *first == "input");
        in_input.is_some_and(|(_, list)| schema::elements_require(self.schema, list, path))
    }

    /// Whether a path has a value for every input.
    fn is_always_there(&self, path: &[String]) -> bool {
        let Some((first, below)) = path.split_first() else {
            return false;
        };
        if first == "input" {
            return schema::is_required(self.schema, below);
        }
        let import = |name: &str| self.imports.get(name);
        if import(first).is_some_and(|path| path.first().is_none_or(|root| root != "data")) {
            return false;
        }
        syntax::resolve(self.package, import, path).is_some_and(|path| {
            let in_data = || path.iter().try_fold(self.data, |at, part| at.as_object()?.get(part));
            self.total.contains(&path) || (!self.is_rule(&path) && in_data().is_some())
        })
    }

    /// `base` with a rule `base.a` that has no value is undefined for the engine, and `{}` in OPA.
    fn prefix_of_rule(&mut self, expr: &'a Expr, bound: &Bound<'a>) {
        let Some(path) = fixed_start(expr) else { return };
        let is_variable = path.first().is_some_and(|name| self.is_variable(name, bound));
        let full = syntax::resolve(
            self.package,
            |name| {
                self.imports
                    .get(name)
                    .filter(|path| path.first().is_some_and(|root| root == "data"))
            },
            &path,
        );
        let Some(full) = full.filter(|_| !is_variable) else {
            return;
        };
        if self.whole(expr, &full) {
            return;
        }
        let shorter = (1..full.len()).filter_map(|length| full.get(..length));
        let shorter = shorter.filter(|path| self.rules.contains_key(*path));
        let is_overlapped = |rule: &[String]| {
            let mut longer = syntax::rules_below(self.rules, rule).filter(|(path, _)| path.len() > rule.len());
            longer.any(|(path, _)| path.get(rule.len()) == full.get(rule.len()))
        };
        if shorter.into_iter().any(is_overlapped) {
            let message = format!(
                "`{}` is below a rule and a part of what another one has",
                path.join(".")
            );
            let hint = "give one of the rules another name";
            self.report(start_of(expr), message, hint);
            return;
        }
        // Of a package, all that is missing are rules whose names have several parts.
        let is_missing = |(path, head): (&Path, &Head)| {
            (head.package < full.len() || path.len() > head.package + 1) && !self.total.contains(path)
        };
        let mut below = syntax::rules_below(self.rules, &full);
        if !self.rules.contains_key(&full) && below.any(is_missing) {
            let message = format!("`{}` is only the start of the names of rules", path.join("."));
            let hint = "name one of the rules";
            self.report(start_of(expr), message, hint);
        }
    }

    /// `data.x[1]` finds the key `"1"` of a rule for the engine, and does not in OPA. In data OPA finds it,
    /// also by an imported name, for which the engine does not.
    fn data_reference(&mut self, expr: &'a Expr, bound: &Bound<'a>) {
        let Some(path) = fixed_start(expr) else { return };
        let import = path.first().and_then(|name| self.imports.get(name));
        let is_variable = path.first().is_some_and(|name| self.is_variable(name, bound));
        let import = import.filter(|path| !is_variable && path.first().is_some_and(|root| root == "data"));
        let is_imported = import.is_some();
        let below: Path = match (import, path.split_first()) {
            (Some(import), Some((_, rest))) => import.iter().skip(1).chain(rest).cloned().collect(),
            (None, Some((root, rest))) if root == "data" => rest.to_vec(),
            _ => return,
        };
        let steps = syntax::steps(expr);
        let mut dynamic = steps.iter().filter_map(Step::index);
        let iterates = |index: &Expr| self.iterates(expr, index);
        let whole = below.iter().map(|name| Step::Fixed(name));
        let whole = whole.chain(steps.iter().skip_while(|step| step.index().is_none()).copied());
        let may_be_text = |index: &Expr| !iterates(index) && self.may_be_position(index);
        if takes_text_as_position(self.data, whole, may_be_text) {
            let name = path.join(".");
            let message = format!("`{name}` would take a text such as \"0\" for the first item of a list");
            let hint = "give the list a name first: `x := data.list`, then `x[…]`";
            self.report(start_of(expr), message, hint);
            return;
        }
        if dynamic.all(iterates) {
            return;
        }
        let target = below.iter().try_fold(self.data, |at, part| at.get(part));
        let is_named = is_imported || has_name(expr, self.packages);
        if (self.is_rule(&below) && !is_named) || target.is_some_and(has_number_as_key) {
            let name = path.join(".");
            let message = format!("`{name}[…]` would find a key such as \"1\" for the number 1");
            let hint = format!("give it a name first: `x := {name}`, then `x[…]`");
            self.report(start_of(expr), message, hint);
        }
    }
}

/// Whether a reference to `data` gets a name before its first index.
fn has_name(expr: &Expr, packages: &BTreeSet<Path>) -> bool {
    let mut expr = expr;
    while let Expr::RefDot { refr, .. } | Expr::RefBrack { refr, .. } = expr {
        if operators::nameable(expr, packages).is_some() {
            return true;
        }
        expr = refr;
    }
    false
}

/// Whether the operators for exact keys can stand for a pattern. The engine gives a name that is there twice its
/// values in the order of the keys, and OPA in another.
fn can_be_exact(pattern: &Expr) -> bool {
    let mut seen = BTreeSet::new();
    let is_twice = names(pattern).any(|name| name != "_" && !seen.insert(name));
    operators::template(pattern).is_some() && !(is_twice && operators::has_object(pattern))
}

/// The parts of two literals that `=` compares one by one: the items of arrays of one length, and the values of objects
/// with the same keys.
fn matching_parts<'a>(one: &'a Expr, other: &'a Expr) -> Option<Vec<(&'a Expr, &'a Expr)>> {
    if let (Expr::Array { items: one, .. }, Expr::Array { items: other, .. }) = (one, other) {
        let items = one.iter().zip(other).map(|(one, other)| (&**one, &**other));
        return (one.len() == other.len()).then(|| items.collect());
    }
    let (one, other) = (entries(one)?, entries(other)?);
    one.keys()
        .eq(other.keys())
        .then(|| one.into_values().zip(other.into_values()).collect())
}

/// The values of an object literal that cannot have one key twice, by key.
fn entries(object: &Expr) -> Option<BTreeMap<String, &Expr>> {
    match object {
        Expr::Object { fields, .. } if !operators::has_computed_keys(object) => {
            Some(fields.iter().map(|(_, key, value)| (key_text(key), &**value)).collect())
        }
        _ => None,
    }
}

/// Whether the arguments of a function follow its name directly. OPA takes nothing else for a call.
fn is_followed_by_arguments(function: &Expr) -> bool {
    let span = match function {
        Expr::Var { span, .. } => span,
        Expr::RefDot { field: (span, _), .. } => span,
        _ => return true,
    };
    let rest = usize::try_from(span.end)
        .ok()
        .and_then(|end| span.source.contents().get(end..));
    rest.is_some_and(|rest| rest.starts_with('('))
}

fn begins_with_union(expr: &Expr) -> bool {
    match expr {
        Expr::BinExpr { op: BinOp::Union, .. } => true,
        Expr::BinExpr { lhs: first, .. }
        | Expr::BoolExpr { lhs: first, .. }
        | Expr::ArithExpr { lhs: first, .. }
        | Expr::AssignExpr { lhs: first, .. }
        | Expr::Membership { value: first, .. } => begins_with_union(first),
        _ => false,
    }
}

/// Whether the text of an expression ends with a union.
fn is_union(expr: &Expr) -> bool {
    match expr {
        Expr::BinExpr { op: BinOp::Union, .. } => true,
        Expr::BoolExpr { rhs: last, .. } | Expr::Membership { collection: last, .. } => is_union(last),
        _ => false,
    }
}

/// Where a module has a name that is one of ours, or a text or comment that looks so.
fn reserved(modules: &[Module]) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    for module in modules {
        let span = &module.package.span;
        let package = syntax::package(module);
        let is_reserved = |path: &Path| path.iter().any(|name| name.contains(operators::RESERVED));
        let lines = (1..).zip(span.source.contents().lines());
        let mut reserved = lines.filter(|(_, line)| line.contains(operators::RESERVED));
        let written = reserved
            .next()
            .map(|(line, _)| Location::new(span.source.get_path().as_str(), line));
        // With an escape, the text does not show it.
        let decoded = || {
            let mut rules = module.policy.iter();
            let rule = rules.find(|rule| is_reserved(&syntax::rule_path(&package, rule)));
            rule.map(|rule| syntax::location(rule.span()))
        };
        found.extend(written.or_else(decoded).map(|location| {
            let message = format!("a name begins with `{}`", operators::RESERVED);
            Diagnostic::error(location, message).with_hint("give it another name")
        }));
    }
    found
}

/// Numbers of data files that the engine cannot keep.
fn numbers_in_data(data: &Json) -> Vec<Diagnostic> {
    let files = data.as_object().into_iter().flatten();
    let inexact = files.filter(|(_, tree)| !numbers::are_exact(&regorus::Value::from((*tree).clone())));
    let finding = |(name, _): (&String, &Json)| {
        let message = format!(
            "the data file `{name}` has a whole number with a point or exponent, or with more digits than are kept"
        );
        Diagnostic::error(Location::new(name.as_str(), 0), message).with_hint("write it without a point, or as a text")
    };
    inexact.map(finding).collect()
}

fn own_result(expr: &Expr) -> Option<&Expr> {
    match expr {
        Expr::Call { fcn, params, .. } => builtins::own_result(fcn, params),
        _ => None,
    }
}

/// The first `=` of a statement within `every`.
fn unification(statement: &Literal) -> Option<&Expr> {
    syntax::evaluated(statement).and_then(unification_in)
}

fn unification_in(expr: &Expr) -> Option<&Expr> {
    // The argument that takes a result is unified with it.
    if matches!(expr, Expr::AssignExpr { op: AssignOp::Eq, .. }) || own_result(expr).is_some() {
        return Some(expr);
    }
    let syntax::Parts { exprs, query } = syntax::parts(expr);
    let statements = query.into_iter().flat_map(|query| &query.stmts);
    let mut below = statements.filter_map(|statement| unification(&statement.literal));
    below.next().or_else(|| exprs.into_iter().find_map(unification_in))
}

fn negated_operand(operand: &Expr) -> Diagnostic {
    let message = "a part of what is negated may have no value, and then OPA does not negate";
    let hint = "give the part a name before, with `:=`, or make the condition a rule or function and negate that";
    Diagnostic::error(start_of(operand), message).with_hint(hint)
}

/// Whether an expression has a value regardless of the values of variables, references and calls.
fn is_independent(expr: &Expr) -> bool {
    match expr {
        Expr::ArrayCompr { .. } | Expr::SetCompr { .. } | Expr::ObjectCompr { .. } => true,
        Expr::String { .. }
        | Expr::RawString { .. }
        | Expr::Number { .. }
        | Expr::Bool { .. }
        | Expr::Null { .. }
        | Expr::Array { .. }
        | Expr::Set { .. }
        | Expr::Object { .. }
        | Expr::UnaryExpr { .. } => syntax::parts(expr).exprs.into_iter().all(is_independent),
        _ => false,
    }
}

/// A text that is the same for keys that are written alike.
fn key_text(key: &Expr) -> String {
    if matches!(key, Expr::RefDot { .. } | Expr::RefBrack { .. }) {
        let steps = syntax::steps(key).into_iter().map(|step| match step {
            Step::Fixed(text) => format!("{text:?}"),
            Step::Index(index) => key_text(index),
        });
        return format!(
            "{}[{}]",
            key_text(syntax::base(key)),
            steps.collect::<Vec<_>>().join("][")
        );
    }
    if let Some(text) = syntax::text(key) {
        return format!("{text:?}");
    }
    let name = match key {
        Expr::Call { fcn, .. } => syntax::dotted(fcn),
        other => other.span().text().to_owned(),
    };
    let parts: Vec<String> = syntax::parts(key).exprs.into_iter().map(key_text).collect();
    format!("{name}({})", parts.join(","))
}

/// Whether a step that may be the text of a number meets a list. In data OPA takes such a text for a
/// position, and the engine does not.
fn takes_text_as_position<'a>(
    data: &Json,
    steps: impl Iterator<Item = Step<'a>>,
    may_be_text: impl Fn(&Expr) -> bool,
) -> bool {
    let may_be_text = |step: &Step<'a>| match step {
        Step::Fixed(name) => is_position(name),
        Step::Index(index) => may_be_text(index),
    };
    let mut steps: Vec<_> = steps.map(|step| (step, may_be_text(&step))).collect();
    // Most references have no such step, and the data can be large.
    while steps.pop_if(|(_, may_be_text)| !*may_be_text).is_some() {}
    let mut at = vec![data];
    for (step, may_be_text) in steps {
        if may_be_text && at.iter().any(|data| data.is_array()) {
            return true;
        }
        at = match step {
            Step::Fixed(name) => at.into_iter().filter_map(|data| data.get(name)).collect(),
            Step::Index(_) => at.into_iter().flat_map(items).collect(),
        };
    }
    false
}

fn items(data: &Json) -> Vec<&Json> {
    match data {
        Json::Object(fields) => fields.values().collect(),
        Json::Array(items) => items.iter().collect(),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => Vec::new(),
    }
}

fn has_number_as_key(data: &Json) -> bool {
    let is_number = |key: &String| key.parse::<f64>().is_ok();
    let is_here = data.as_object().is_some_and(|fields| fields.keys().any(is_number));
    is_here || items(data).into_iter().any(has_number_as_key)
}

/// The names in an expression that is a pattern.
fn names(pattern: &Expr) -> impl Iterator<Item = &str> {
    variables(pattern).into_iter().map(|name| name.span().text())
}

/// The names in an expression that is a pattern, where they are.
fn variables(pattern: &Expr) -> Vec<&Expr> {
    match pattern {
        Expr::Var { .. } => vec![pattern],
        Expr::Array { .. } | Expr::Set { .. } | Expr::Object { .. } => {
            syntax::parts(pattern).exprs.into_iter().flat_map(variables).collect()
        }
        _ => Vec::new(),
    }
}

fn bind<'a>(pattern: &'a Expr, bound: &mut Bound<'a>) {
    names(pattern).for_each(|name| *bound.entry(name).or_default() += 1);
}

fn indices(reference: &Expr) -> impl Iterator<Item = &Expr> {
    syntax::steps(reference).into_iter().filter_map(|step| step.index())
}

/// The variables that an expression binds by iterating, outside of comprehensions.
fn bind_indices<'a>(expr: &'a Expr, bound: &mut Bound<'a>) {
    if let Expr::RefBrack { index, .. } = expr {
        bind(index, bound);
    }
    let syntax::Parts { exprs, query } = syntax::parts(expr);
    if query.is_none() {
        exprs.into_iter().for_each(|part| bind_indices(part, bound));
    }
}

fn bind_statement<'a>(expr: &'a Expr, bound: &mut Bound<'a>) {
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
            let arity = builtins::arity(&syntax::dotted(fcn));
            if let Some(last) = params.last().filter(|_| arity.is_none_or(|arity| arity < params.len())) {
                bind(last, bound);
            }
        }
        _ => {}
    }
    bind_indices(expr, bound);
}
