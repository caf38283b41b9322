//! Refuses variables that the engine gives a value later than OPA does, or never.
//!
//! The engine orders the statements of a query by what binds a variable. An index that gives a variable its
//! values, and what is within `not`, `every` and comprehensions, it leaves where they are.

use std::collections::BTreeSet;
use std::slice;

use regorus::unstable::{AssignOp, Expr, Literal, LiteralStmt, Query, Rule, Span};

use super::{indices, names, own_result, safety, variables};
use crate::operators;
use crate::syntax::{self, start_of};
use tollgate_core::diagnostic::Diagnostic;

/// What the engine takes for names and OPA does not.
const KEYWORDS: [&str; 4] = ["contains", "every", "if", "in"];

/// - `global`: names of the package that are no variables.
/// - `arity`: the number of arguments of a function, if it is known.
pub(super) fn check<'a>(
    rule: &'a Rule,
    global: &BTreeSet<&str>,
    arity: &dyn Fn(&Expr) -> Option<usize>,
    found: &mut Vec<Diagnostic>,
) {
    let Rule::Spec { head, bodies, .. } = rule else {
        return;
    };
    let (name, arguments, value) = syntax::head_parts(head);
    let arguments: BTreeSet<&str> = arguments.iter().flat_map(|argument| names(argument)).collect();
    let scope = Scope {
        outer: arguments.clone(),
        declared: arguments,
        every: None,
        in_comprehension: false,
    };
    let mut order = Order { global, arity, found };
    let heads = |value: Option<&'a Expr>| -> Vec<&'a Expr> { value.into_iter().chain(indices(name)).collect() };
    if bodies.is_empty() {
        order.query(&[], &heads(value), &scope);
    }
    for body in bodies {
        order.query(&body.query.stmts, &heads(syntax::value_of(body, value)), &scope);
    }
}

/// What is around a query.
#[derive(Clone)]
struct Scope<'a> {
    /// Arguments of the function and variables of outer queries.
    outer: BTreeSet<&'a str>,
    /// All names that are declared around, those of rules included.
    declared: BTreeSet<&'a str>,
    /// Within the body of `every`: its variables, and those of each `every` around it.
    every: Option<BTreeSet<&'a str>>,
    /// Whether it is in a comprehension within the body of `every`.
    in_comprehension: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// It is bound as a whole, or by `some … in`.
    Bind,
    /// It is bound as a part of an array or object.
    Pattern,
    /// It is the whole index of a reference.
    Index,
    /// It is within `not`, the body of `every` or a comprehension.
    Nested,
    Other,
}

struct Mention<'a> {
    at: &'a Expr,
    /// The position of its statement in the query. What is evaluated for each solution is after the last.
    statement: usize,
    kind: Kind,
}

/// Collects the mentions of variables in a query, in order.
struct Mentions<'a, 'b> {
    arity: &'b dyn Fn(&Expr) -> Option<usize>,
    statement: usize,
    all: Vec<Mention<'a>>,
}

impl<'a> Mentions<'a, '_> {
    fn add(&mut self, at: &'a Expr, kind: Kind) {
        let statement = self.statement;
        self.all.push(Mention { at, statement, kind });
    }

    fn nested(&mut self, free: Vec<&'a Expr>) {
        free.into_iter().for_each(|at| self.add(at, Kind::Nested));
    }

    fn literal(&mut self, literal: &'a Literal) {
        match literal {
            Literal::SomeVars { .. } => {}
            Literal::SomeIn {
                key, value, collection, ..
            } => {
                for pattern in key.iter().chain([value]) {
                    self.pattern(pattern, Kind::Bind, Kind::Bind);
                }
                self.expr(collection);
            }
            Literal::Expr { expr, .. } => self.expr(expr),
            Literal::NotExpr { expr, .. } => self.nested(free(expr)),
            Literal::Every {
                key,
                value,
                domain,
                query,
                ..
            } => {
                self.expr(domain);
                self.nested(free_in_every(key.as_ref(), value, query));
            }
        }
    }

    fn expr(&mut self, expr: &'a Expr) {
        match expr {
            Expr::Var { .. } => self.add(expr, Kind::Other),
            Expr::AssignExpr { op, lhs, rhs, .. } => {
                self.pattern(lhs, Kind::Bind, Kind::Pattern);
                match op {
                    AssignOp::Eq => self.pattern(rhs, Kind::Bind, Kind::Pattern),
                    AssignOp::ColEq => self.expr(rhs),
                }
            }
            Expr::RefBrack { refr, index, .. } => {
                self.expr(refr);
                self.pattern(index, Kind::Index, Kind::Other);
            }
            Expr::Call { fcn, params, .. } => {
                self.expr(syntax::base(fcn));
                let arity = (self.arity)(fcn).unwrap_or(params.len());
                for (position, argument) in params.iter().enumerate() {
                    // One argument more than the function takes is its result.
                    if position < arity {
                        self.expr(argument);
                    } else {
                        self.pattern(argument, Kind::Bind, Kind::Pattern);
                    }
                }
            }
            _ => {
                let syntax::Parts { exprs, query } = syntax::parts(expr);
                match query {
                    Some(query) => self.nested(free_in_query(query, exprs)),
                    None => exprs.into_iter().for_each(|part| self.expr(part)),
                }
            }
        }
    }

    /// - `whole`: what a variable is if it is all of the pattern.
    /// - `part`: what it is within an array or object.
    fn pattern(&mut self, pattern: &'a Expr, whole: Kind, part: Kind) {
        match pattern {
            Expr::Var { .. } => self.add(pattern, whole),
            Expr::Array { .. } | Expr::Set { .. } | Expr::Object { .. } => {
                let parts = syntax::parts(pattern).exprs.into_iter();
                parts.for_each(|item| self.pattern(item, part, part));
            }
            _ => self.expr(pattern),
        }
    }
}

struct Order<'b> {
    global: &'b BTreeSet<&'b str>,
    arity: &'b dyn Fn(&Expr) -> Option<usize>,
    found: &'b mut Vec<Diagnostic>,
}

impl Order<'_> {
    fn refuse(&mut self, at: &Expr, message: String, hint: &str) {
        self.found
            .push(Diagnostic::error(start_of(at), message).with_hint(hint));
    }

    /// - `heads`: what is evaluated for each solution.
    fn query<'a>(&mut self, statements: &'a [LiteralStmt], heads: &[&'a Expr], scope: &Scope<'a>) {
        let mut mentions = Mentions {
            arity: self.arity,
            statement: 0,
            all: Vec::new(),
        };
        for statement in statements {
            mentions.literal(&statement.literal);
            statement.with_mods.iter().for_each(|with| mentions.expr(&with.r#as));
            mentions.statement += 1;
        }
        heads.iter().for_each(|head| mentions.expr(head));
        let mentions = mentions.all;

        let findings = self.found.len();
        let refused = self.declarations(statements, &mentions, scope);
        let is_own = |name: &&str| !scope.outer.contains(name) && !self.global.contains(name) && *name != "_";
        let own: BTreeSet<&str> = mentions.iter().map(Mention::name).filter(is_own).collect();
        for name in own.difference(&refused) {
            let of_name: Vec<&Mention<'a>> = mentions.iter().filter(|mention| mention.name() == *name).collect();
            self.variable(name, &of_name);
        }
        self.assignments(statements, scope);
        // A variable that is refused already is often unsafe, too, and one finding is enough.
        if self.found.len() == findings {
            self.safety(statements, heads, &mentions, &own);
        }

        let mut inner = scope.clone();
        inner.declared.extend(declared(statements));
        let given = mentions.iter().filter(|mention| mention.gives());
        inner.declared.extend(given.map(Mention::name));
        let is_here = |mention: &&Mention<'a>| mention.kind != Kind::Nested && own.contains(mention.name());
        inner.outer.extend(mentions.iter().filter(is_here).map(Mention::name));
        for statement in statements {
            self.within(&statement.literal, &inner);
            statement
                .with_mods
                .iter()
                .for_each(|with| self.expr(&with.r#as, &inner));
        }
        heads.iter().for_each(|head| self.expr(head, &inner));
    }

    /// Checks each `some x`, and returns the names that are refused.
    fn declarations<'a>(
        &mut self,
        statements: &'a [LiteralStmt],
        mentions: &[Mention<'a>],
        scope: &Scope<'a>,
    ) -> BTreeSet<&'a str> {
        let mut refused = BTreeSet::new();
        let mut names = BTreeSet::new();
        for (at, statement) in statements.iter().enumerate() {
            for span in all_declared(slice::from_ref(statement)) {
                let name = span.text();
                // In a nested scope, the name is another variable, or the rule with that name.
                let is_global = self.global.contains(name);
                let is_before = |mention: &Mention<'_>| {
                    mention.name() == name && mention.statement < at && (is_global || mention.kind != Kind::Nested)
                };
                if KEYWORDS.contains(&name) && refused.insert(name) {
                    let finding = Diagnostic::error(syntax::location(span), format!("`{name}` is a keyword"));
                    self.found.push(finding.with_hint("give the variable another name"));
                }
                let (is_twice, is_used) = (!names.insert(name), mentions.iter().any(is_before));
                if name != "_" && (is_twice || is_used) && refused.insert(name) {
                    let message = match is_twice {
                        true => format!("`{name}` is declared twice in a body"),
                        false => format!("`{name}` is used before it is declared"),
                    };
                    let hint = "give the variable another name, or move the statement that declares it to the front";
                    let finding = Diagnostic::error(syntax::location(span), message);
                    self.found.push(finding.with_hint(hint));
                }
            }
        }
        let declared = statements.iter().filter_map(|statement| match &statement.literal {
            Literal::SomeVars { vars, .. } => Some(vars),
            _ => None,
        });
        for span in declared.flatten() {
            let name = span.text();
            let is_here = |mention: &Mention<'_>| {
                mention.name() == name && mention.kind != Kind::Nested && mention.statement < statements.len()
            };
            let (message, hint) = if self.global.contains(name) || scope.outer.contains(name) {
                let other = if scope.outer.contains(name) {
                    "a variable around it"
                } else {
                    "a rule or import"
                };
                let message =
                    format!("`{name}` is also the name of {other}; the engine does not look for values of it");
                (message, "give the variable another name")
            } else if mentions.iter().any(is_here) {
                continue;
            } else {
                let message = format!("nothing in the body gives `{name}` a value");
                (
                    message,
                    "use it as an index in the body first, or write `some x, _ in collection`",
                )
            };
            refused.insert(name);
            self.found
                .push(Diagnostic::error(syntax::location(span), message).with_hint(hint));
        }
        refused
    }

    /// - `mentions`: those of one variable of a query.
    fn variable(&mut self, name: &str, mentions: &[&Mention<'_>]) {
        let binds = |mention: &Mention<'_>| matches!(mention.kind, Kind::Bind | Kind::Pattern);
        if !mentions.iter().any(|mention| mention.gives()) {
            return;
        }
        let mut before = mentions.iter().take_while(|mention| !mention.gives());
        if let Some(mention) = before.find(|mention| mention.kind == Kind::Nested) {
            let message = format!("`{name}` is used within `not`, `every` or a comprehension before it has a value");
            let hint = "move the statement behind the one that gives it a value";
            return self.refuse(mention.at, message, hint);
        }
        let is_pattern_in = |statement| {
            let mut patterns = mentions.iter().filter(|mention| mention.kind == Kind::Pattern);
            patterns.any(|pattern| pattern.statement == statement)
        };
        let is_bound_beside = |index: &&&Mention<'_>| {
            let mut bound = mentions.iter().filter(|mention| mention.kind == Kind::Bind);
            index.kind == Kind::Index && bound.any(|bound| bound.statement == index.statement)
        };
        if let Some(mention) = mentions.iter().find(is_bound_beside) {
            let message = format!("`{name}` is an index in the statement that gives it a value");
            let hint = "write `==` to compare, or give it a value in a statement before";
            return self.refuse(mention.at, message, hint);
        }
        let mut others = mentions.iter().filter(|mention| mention.kind != Kind::Pattern);
        if let Some(mention) = others.find(|mention| is_pattern_in(mention.statement)) {
            let message = format!("`{name}` is used in the statement that takes its value out of an array or object");
            let hint = "give it a value in a statement before, such as `some x, y in collection`";
            return self.refuse(mention.at, message, hint);
        }
        let first = mentions.iter().find(|mention| mention.kind != Kind::Nested);
        if let Some(first) = first.filter(|first| first.kind == Kind::Other)
            && !mentions
                .iter()
                .any(|mention| binds(mention) && mention.statement != first.statement)
        {
            let message = format!("`{name}` is used before the index that gives it a value");
            self.refuse(first.at, message, "write `some x, y in collection` first");
        }
    }

    /// - `mentions` and `own`: those of the query, and which of the names are its own.
    fn safety<'a>(
        &mut self,
        statements: &'a [LiteralStmt],
        heads: &[&'a Expr],
        mentions: &[Mention<'a>],
        own: &BTreeSet<&'a str>,
    ) {
        let declared = declared(statements);
        let is_here = |name: &&str| {
            let mut mentions = mentions.iter().filter(|mention| mention.name() == *name);
            declared.contains(name) || mentions.any(|mention| mention.kind != Kind::Nested)
        };
        let own: BTreeSet<&str> = own.iter().copied().filter(is_here).collect();
        let Some(name) = safety::unsafe_variable(statements, heads, &own, self.arity) else {
            return;
        };
        if let Some(mention) = mentions.iter().find(|mention| mention.name() == name) {
            let message = format!("`{name}` is unsafe: each statement that would give it a value uses it");
            let hint = "give it a value in a separate statement, such as `some x, y in collection`";
            self.refuse(mention.at, message, hint);
        }
    }

    /// Checks what `:=` and `=` mean for names that are there already.
    fn assignments<'a>(&mut self, statements: &'a [LiteralStmt], scope: &Scope<'a>) {
        let declared = declared(statements);
        for statement in statements {
            let Literal::Expr { expr, .. } = &statement.literal else {
                continue;
            };
            let Expr::AssignExpr { op, lhs, rhs, .. } = &**expr else {
                continue;
            };
            let is_target = |at: &&&Expr| names(lhs).any(|target| target == at.span().text());
            let is_other = |name: &str| {
                let is_variable = declared.contains(name) || scope.outer.contains(name);
                self.global.contains(name) && !is_variable && !matches!(name, "input" | "data")
            };
            match (op, &**lhs) {
                (AssignOp::ColEq, _) => {
                    if let Some(at) = free(rhs).iter().find(is_target) {
                        let message = format!("`{}` is used in the value that `:=` gives it", at.span().text());
                        self.refuse(at, message, "give the new variable another name");
                    }
                }
                (AssignOp::Eq, Expr::Var { span, .. }) if is_other(span.text()) && !is_literal(rhs) => {
                    let message = format!("`{}` is the name of a rule or import, and no variable", span.text());
                    self.refuse(lhs, message, "write `==` to compare, or give the variable another name");
                }
                (AssignOp::Eq, _) => {
                    let sides = [(lhs, rhs), (rhs, lhs)];
                    let never = sides
                        .into_iter()
                        .find(|(one, other)| is_collection(one) && operators::is_literal(other));
                    if let Some((pattern, _)) = never {
                        let message = "an array, set or object does not equal a literal of another type".to_owned();
                        self.refuse(pattern, message, "compare values of the same type");
                    }
                }
            }
        }
    }

    /// Checks the queries in a statement.
    fn within<'a>(&mut self, literal: &'a Literal, scope: &Scope<'a>) {
        match literal {
            Literal::SomeVars { .. } => {}
            Literal::SomeIn {
                key, value, collection, ..
            } => {
                for expr in key.iter().chain([value, collection]) {
                    self.expr(expr, scope);
                }
            }
            Literal::Expr { expr, .. } | Literal::NotExpr { expr, .. } => self.expr(expr, scope),
            Literal::Every {
                key,
                value,
                domain,
                query,
                ..
            } => {
                let mut body = scope.clone();
                let names = key.iter().chain([value]).map(|name| name.text());
                let names: Vec<&str> = names.filter(|name| *name != "_").collect();
                if let [key, value] = names.as_slice()
                    && key == value
                {
                    let message = format!("`{value}` is declared twice in `every`");
                    self.refuse(domain, message, "give the second variable another name");
                }
                if let Some(at) = free(domain).iter().find(|at| names.contains(&at.span().text())) {
                    let message = format!("`{}` of `every` is also in what it goes through", at.span().text());
                    self.refuse(at, message, "give the variable another name");
                }
                body.declared.extend(&names);
                // OPA takes the names for those of `every` in its domain, too.
                let domain_scope = Scope {
                    declared: body.declared.clone(),
                    ..scope.clone()
                };
                self.expr(domain, &domain_scope);
                body.outer.extend(&names);
                body.every.get_or_insert_default().extend(&names);
                self.query(&query.stmts, &[], &body);
            }
        }
    }

    fn expr<'a>(&mut self, expr: &'a Expr, scope: &Scope<'a>) {
        if let Some(every) = &scope.every {
            self.in_every(expr, every, scope.in_comprehension);
        }
        if let Expr::Call { fcn, .. } = expr
            && let Expr::Var { span, .. } = syntax::base(fcn)
            && scope.declared.contains(span.text())
        {
            let message = format!("`{}` is called, and a variable has its name", span.text());
            self.refuse(fcn, message, "give the variable another name");
        }
        let syntax::Parts { exprs, query } = syntax::parts(expr);
        if let Some(query) = query {
            let mut inner = scope.clone();
            inner.in_comprehension = scope.every.is_some();
            self.query(&query.stmts, &exprs, &inner);
        } else {
            exprs.into_iter().for_each(|part| self.expr(part, scope));
        }
    }

    /// Within `every`, the engine takes its variables for new ones in some places.
    fn in_every(&mut self, expr: &Expr, every: &BTreeSet<&str>, in_comprehension: bool) {
        match expr {
            Expr::RefBrack { index, .. } => {
                let is_composite = matches!(
                    **index,
                    Expr::Array { .. } | Expr::Object { .. } | Expr::Set { .. } | Expr::Call { .. }
                );
                let mut variables = free(index).into_iter().map(|at| at.span().text());
                if let Some(name) = variables.find(|name| every.contains(name))
                    && (is_composite || in_comprehension)
                {
                    let message = format!("the engine does not use the value of `{name}` of `every` in this index");
                    let hint = "write a function that takes it as an argument, and call that within `every`";
                    self.refuse(index, message, hint);
                }
            }
            Expr::Call { fcn, params, .. } => {
                let is_longer = (self.arity)(fcn).is_some_and(|arity| arity < params.len());
                // What the gateway puts before the call itself is refused as `=` is.
                if is_longer && own_result(expr).is_none() {
                    let message = "the last argument is the result of the function, which `every` does not compare";
                    self.refuse(fcn, message.to_owned(), "compare the result with `==`");
                }
            }
            _ => {}
        }
    }
}

impl<'a> Mention<'a> {
    fn name(&self) -> &'a str {
        self.at.span().text()
    }

    /// Whether the variable has a value after it.
    fn gives(&self) -> bool {
        matches!(self.kind, Kind::Bind | Kind::Pattern | Kind::Index)
    }
}

/// The variables in an expression that are not declared within it.
pub(super) fn free(expr: &Expr) -> Vec<&Expr> {
    if let Expr::Var { .. } = expr {
        return vec![expr];
    }
    let syntax::Parts { exprs, query } = syntax::parts(expr);
    match query {
        Some(query) => free_in_query(query, exprs),
        None => exprs.into_iter().flat_map(free).collect(),
    }
}

/// - `heads`: what is evaluated for each solution.
pub(super) fn free_in_query<'a>(query: &'a Query, heads: Vec<&'a Expr>) -> Vec<&'a Expr> {
    let mut found = Vec::new();
    for statement in &query.stmts {
        match &statement.literal {
            Literal::SomeVars { .. } => {}
            Literal::SomeIn {
                key, value, collection, ..
            } => found.extend(key.iter().chain([value, collection]).flat_map(|expr| free(expr))),
            Literal::Expr { expr, .. } | Literal::NotExpr { expr, .. } => found.extend(free(expr)),
            Literal::Every {
                key,
                value,
                domain,
                query,
                ..
            } => {
                found.extend(free(domain));
                found.extend(free_in_every(key.as_ref(), value, query));
            }
        }
    }
    found.extend(heads.into_iter().flat_map(free));
    let declared = declared(&query.stmts);
    found.retain(|at| !declared.contains(at.span().text()));
    found
}

/// The same of the body of `every`, without its own variables.
pub(super) fn free_in_every<'a>(key: Option<&Span>, value: &Span, body: &'a Query) -> Vec<&'a Expr> {
    let is_own = |at: &Expr| {
        key.into_iter()
            .chain([value])
            .any(|name| name.text() == at.span().text())
    };
    let mut found = free_in_query(body, Vec::new());
    found.retain(|at| !is_own(at));
    found
}

/// The names that `some` and `:=` declare in a query.
fn declared(statements: &[LiteralStmt]) -> BTreeSet<&str> {
    all_declared(statements).into_iter().map(Span::text).collect()
}

/// Each place that declares a name, in order.
fn all_declared(statements: &[LiteralStmt]) -> Vec<&Span> {
    let mut declared: Vec<&Span> = Vec::new();
    for statement in statements {
        match &statement.literal {
            Literal::SomeVars { vars, .. } => declared.extend(vars),
            Literal::SomeIn { key, value, .. } => {
                let patterns = key.iter().chain([value]).flat_map(|pattern| variables(pattern));
                declared.extend(patterns.map(Expr::span));
            }
            Literal::Expr { expr, .. } => {
                if let Expr::AssignExpr {
                    op: AssignOp::ColEq,
                    lhs,
                    ..
                } = &**expr
                {
                    declared.extend(variables(lhs).into_iter().map(Expr::span));
                }
            }
            Literal::NotExpr { .. } | Literal::Every { .. } => {}
        }
    }
    declared
}

/// Whether an expression is an array, set or object that is written out.
fn is_collection(expr: &Expr) -> bool {
    matches!(expr, Expr::Array { .. } | Expr::Set { .. } | Expr::Object { .. })
}

/// Whether an expression is the same wherever it is.
fn is_literal(expr: &Expr) -> bool {
    match expr {
        _ if is_collection(expr) => syntax::parts(expr).exprs.into_iter().all(is_literal),
        _ => operators::is_literal(expr),
    }
}
