//! Finds every expression that could give a variable of one rule its value, and which index
//! expressions iterate over a whole collection.
//!
//! Invariant: all possible origins of a variable count, as the engine chooses its own order of
//! evaluation.

use std::collections::{BTreeMap, HashMap, HashSet};

use regorus::unstable::{AssignOp, Expr, ExprRef, Literal, Query, Rule, RuleBody, RuleHead};

use super::syntax;

/// What could give a variable its value.
#[derive(Clone, Copy)]
pub(crate) enum Source<'a> {
    Value(&'a Expr),
    /// A key of the value of an expression.
    Key(&'a Expr),
    /// The argument with this index.
    Argument(usize),
}

/// A variable: its name and the number of its declaration, from 1. All variables that are not
/// declared have the number 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Variable<'a> {
    scope: usize,
    name: &'a str,
    pub(super) bound: BindingSite,
}

/// The variables of one rule, with the origins of their values.
#[derive(Default)]
pub(crate) struct RuleVariables<'a> {
    /// Each origin with the number of levels inside it.
    pub(crate) origins: BTreeMap<Variable<'a>, Vec<(Source<'a>, usize)>>,
    /// The variables that a name means in an expression. There is more than one in the head of a
    /// rule with several bodies.
    meanings: HashMap<*const Expr, Vec<Variable<'a>>>,
    /// Index expressions that may be unbound. Each iterates over all items of what it indexes.
    iterating: HashSet<*const Expr>,
}

/// Whether the declaration of a variable also gives it its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum BindingSite {
    /// No: `some x`, `every`, or none at all.
    Elsewhere,
    /// Yes: `:=`, `some … in`, an argument.
    AtDeclaration,
}

impl<'a> RuleVariables<'a> {
    /// Collects the variables of `rule`. `arity` returns the number of arguments of the function that
    /// an expression names, if it is known.
    pub(crate) fn collect(rule: &'a Rule, arity: &dyn Fn(&Expr) -> Option<usize>) -> Self {
        let mut collector = VariableCollector {
            variables: Self::default(),
            scopes: vec![BTreeMap::new()],
            declared: 0,
            arity,
        };
        let Rule::Spec { head, bodies, .. } = rule else {
            return collector.variables;
        };
        if let RuleHead::Func { args, .. } = head {
            for argument in args {
                collector.declare_names(argument);
            }
            for (at, argument) in args.iter().enumerate() {
                collector.pattern(argument, Source::Argument(at), 0, BindingSite::AtDeclaration);
            }
        }
        for body in bodies {
            collector.body(head, body);
        }
        if bodies.is_empty() {
            collector.head(head);
        }
        collector.variables
    }

    pub(super) fn iterates(&self, index: &Expr) -> bool {
        self.iterating.contains(&std::ptr::from_ref(index))
    }

    /// The variables that a name can mean in an expression.
    pub(crate) fn meanings(&self, name: &Expr) -> &[Variable<'a>] {
        self.meanings.get(&std::ptr::from_ref(name)).map_or(&[], Vec::as_slice)
    }
}

/// The names in a pattern, each with the number of brackets around it.
fn names(pattern: &Expr) -> Vec<(&str, usize)> {
    let items = match pattern {
        Expr::Var { span, .. } => return vec![(span.text(), 0)],
        Expr::Array { .. } | Expr::Set { .. } | Expr::Object { .. } => syntax::parts(pattern).exprs,
        _ => Vec::new(),
    };
    let names = items.into_iter().flat_map(names);
    names.map(|(name, levels)| (name, levels + 1)).collect()
}

struct VariableCollector<'a, 'b> {
    variables: RuleVariables<'a>,
    /// The names that each open query declares, from the outermost to the current one.
    scopes: Vec<BTreeMap<&'a str, Variable<'a>>>,
    declared: usize,
    arity: &'b dyn Fn(&Expr) -> Option<usize>,
}

impl<'a> VariableCollector<'a, '_> {
    /// Declares a name from here on, in the innermost scope.
    ///
    /// The engine refuses a name that is used before its declaration in the same query. In nested
    /// queries it takes such a name for another variable.
    fn declare(&mut self, name: &'a str, bound: BindingSite) {
        self.declared += 1;
        let scope = self.declared;
        if let Some(innermost) = self.scopes.last_mut() {
            innermost.insert(name, Variable { scope, name, bound });
        }
    }

    fn declare_names(&mut self, pattern: &'a Expr) {
        for (name, _) in names(pattern) {
            self.declare(name, BindingSite::AtDeclaration);
        }
    }

    fn meaning(&self, name: &'a str) -> Variable<'a> {
        let declared = self.scopes.iter().rev().find_map(|scope| scope.get(name));
        declared.copied().unwrap_or(Variable {
            scope: 0,
            name,
            bound: BindingSite::Elsewhere,
        })
    }

    /// Records an origin of a variable.
    ///
    /// - `by`: whether this is the declaration. If a declaration gives a variable its value, other
    ///   expressions only compare it and are not origins.
    fn bind(&mut self, name: &'a str, source: Source<'a>, levels: usize, by: BindingSite) {
        let variable = self.meaning(name);
        if name != "_" && variable.bound == by {
            self.variables
                .origins
                .entry(variable)
                .or_default()
                .push((source, levels));
        }
    }

    /// Binds the variables of a pattern to parts of what it is matched with, starting at that many
    /// levels inside.
    fn pattern(&mut self, pattern: &'a Expr, source: Source<'a>, levels: usize, by: BindingSite) {
        for (name, inside) in names(pattern) {
            self.bind(name, source, levels + inside, by);
        }
    }

    /// Examines a body and the head that belongs to it.
    fn body(&mut self, head: &'a RuleHead, body: &'a RuleBody) {
        self.scopes.push(BTreeMap::new());
        self.statements(&body.query);
        body.assign.iter().for_each(|assign| self.expr(&assign.value));
        if !body.is_else {
            self.head(head);
        }
        self.scopes.pop();
    }

    fn head(&mut self, head: &'a RuleHead) {
        let (name, _, value) = syntax::head_parts(head);
        value.into_iter().for_each(|value| self.expr(value));
        // The brackets of a head contain keys to create, not items to look up.
        for index in syntax::steps(name).iter().filter_map(syntax::Step::index) {
            self.expr(index);
        }
    }

    fn nested(&mut self, query: &'a Query, heads: &[&'a Expr]) {
        self.scopes.push(BTreeMap::new());
        self.statements(query);
        heads.iter().for_each(|head| self.expr(head));
        self.scopes.pop();
    }

    fn statements(&mut self, query: &'a Query) {
        for statement in &query.stmts {
            match &statement.literal {
                Literal::SomeVars { vars, .. } => {
                    vars.iter()
                        .for_each(|name| self.declare(name.text(), BindingSite::Elsewhere));
                }
                Literal::SomeIn {
                    key, value, collection, ..
                } => {
                    self.expr(collection);
                    for pattern in key.iter().chain([value]) {
                        self.declare_names(pattern);
                    }
                    let by = BindingSite::AtDeclaration;
                    if let Some(key) = key {
                        self.pattern(key, Source::Key(collection), 0, by);
                        self.expr(key);
                    }
                    self.pattern(value, Source::Value(collection), 1, by);
                    self.expr(value);
                }
                Literal::Expr { expr, .. } | Literal::NotExpr { expr, .. } => self.expr(expr),
                Literal::Every {
                    key,
                    value,
                    domain,
                    query,
                    ..
                } => {
                    self.expr(domain);
                    self.scopes.push(BTreeMap::new());
                    // As an index in a nested query, these count as iterating over all items.
                    for name in key.iter().chain([value]) {
                        self.declare(name.text(), BindingSite::Elsewhere);
                    }
                    let by = BindingSite::Elsewhere;
                    if let Some(key) = key {
                        self.bind(key.text(), Source::Key(domain), 0, by);
                    }
                    self.bind(value.text(), Source::Value(domain), 1, by);
                    self.nested(query, &[]);
                    self.scopes.pop();
                }
            }
        }
    }

    fn expr(&mut self, expr: &'a Expr) {
        match expr {
            Expr::Var { span, .. } => self.mention(expr, span.text()),
            Expr::Call { fcn, params, .. } => self.call(expr, fcn, params),
            Expr::RefBrack { refr, index, .. } => self.index(refr, index),
            Expr::AssignExpr { op, lhs, rhs, .. } => {
                self.expr(rhs);
                match op {
                    AssignOp::ColEq => {
                        self.declare_names(lhs);
                        self.unify(lhs, rhs, BindingSite::AtDeclaration);
                    }
                    AssignOp::Eq => {
                        self.unify(lhs, rhs, BindingSite::Elsewhere);
                        self.unify(rhs, lhs, BindingSite::Elsewhere);
                    }
                }
                return self.expr(lhs);
            }
            _ => {}
        }
        let syntax::Parts { exprs, query } = syntax::parts(expr);
        match query {
            Some(query) => self.nested(query, &exprs),
            None => exprs.into_iter().for_each(|part| self.expr(part)),
        }
    }

    fn mention(&mut self, expr: &'a Expr, name: &'a str) {
        let variable = self.meaning(name);
        let meanings = self.variables.meanings.entry(std::ptr::from_ref(expr)).or_default();
        if !meanings.contains(&variable) {
            meanings.push(variable);
        }
    }

    /// Matches two array literals item by item. Otherwise `[a, b] := [x, y]` would make each of
    /// both as large as the whole.
    fn unify(&mut self, pattern: &'a Expr, value: &'a Expr, by: BindingSite) {
        match (pattern, value) {
            (Expr::Array { items, .. }, Expr::Array { items: values, .. }) if items.len() == values.len() => {
                items
                    .iter()
                    .zip(values)
                    .for_each(|(item, value)| self.unify(item, value, by));
            }
            _ => self.pattern(pattern, Source::Value(value), 0, by),
        }
    }

    /// `collection[index]`: a variable that is not bound yet iterates over all keys.
    fn index(&mut self, collection: &'a Expr, index: &'a Expr) {
        self.pattern(index, Source::Key(collection), 0, BindingSite::Elsewhere);
        let is_open = |name| name == "_" || self.meaning(name).bound == BindingSite::Elsewhere;
        if names(index).into_iter().any(|(name, _)| is_open(name)) {
            self.variables.iterating.insert(std::ptr::from_ref(index));
        }
    }

    /// A call with one argument more than the function takes binds the last argument to the result.
    fn call(&mut self, call: &'a Expr, function: &'a Expr, parameters: &'a [ExprRef]) {
        if let Some((last, rest)) = parameters.split_last()
            && (self.arity)(function).is_none_or(|arity| arity == rest.len())
        {
            self.pattern(last, Source::Value(call), 0, BindingSite::Elsewhere);
        }
    }
}
