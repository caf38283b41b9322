//! Refuses bodies of which OPA says that a variable is unsafe: no order of the statements gives it a value
//! before it is used. The engine evaluates some of them.
//!
//! As in OPA's compiler, calls, operators and comprehensions within a statement are separate statements.

use std::collections::BTreeSet;

use regorus::unstable::{AssignOp, Expr, Literal, LiteralStmt};

use super::order::{free, free_in_every, free_in_query};
use super::{matching_parts, names};
use crate::syntax;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Variable<'a> {
    Named(&'a str),
    /// The value of a call, an operator or a comprehension within another statement.
    Result(usize),
}

type Variables<'a> = BTreeSet<Variable<'a>>;

/// A statement, or a part of one that is evaluated on its own.
#[derive(Default)]
struct Node<'a> {
    uses: Variables<'a>,
    /// What it gives values by itself, by an index or as the result of a call.
    gives: Variables<'a>,
    /// What its comprehensions need.
    closures: Variables<'a>,
    /// Pairs of which one gives the other a value.
    pairs: Vec<[Side<'a>; 2]>,
}

/// One side of `=`, or a part of it.
#[derive(Default)]
struct Side<'a> {
    uses: Variables<'a>,
    /// Those that the other side can give a value.
    takes: Variables<'a>,
}

/// What the nodes of a query are made from.
struct Nodes<'a, 'b> {
    /// The variables of the query itself: not those around it, and no names of rules and imports.
    own: &'b BTreeSet<&'a str>,
    arity: &'b dyn Fn(&Expr) -> Option<usize>,
    results: usize,
    all: Vec<Node<'a>>,
    /// A variable that OPA finds unsafe although other statements give it a value: an index and a comprehension
    /// within one call have it.
    divided: Option<&'a str>,
}

/// A variable of the query that no order gives a value.
///
/// - `heads`: what is evaluated for each solution.
/// - `own`: the variables of the query itself.
/// - `arity`: the number of arguments of a function, if it is known.
pub(super) fn unsafe_variable<'a>(
    statements: &'a [LiteralStmt],
    heads: &[&'a Expr],
    own: &BTreeSet<&'a str>,
    arity: &dyn Fn(&Expr) -> Option<usize>,
) -> Option<&'a str> {
    let mut nodes = Nodes {
        own,
        arity,
        results: 0,
        all: Vec::new(),
        divided: None,
    };
    for statement in statements {
        nodes.literal(&statement.literal);
        for with in &statement.with_mods {
            nodes.whole(&with.r#as);
        }
    }
    heads.iter().for_each(|head| nodes.whole(head));
    if nodes.divided.is_some() {
        return nodes.divided;
    }
    let mut known = Variables::new();
    let mut left = nodes.all;
    loop {
        let before = left.len();
        left.retain(|node| {
            let gives = node.gives_with(&known);
            let is_next = node.uses.is_subset(&gives);
            if is_next {
                known.extend(gives);
            }
            !is_next
        });
        if left.len() == before {
            break;
        }
    }
    let unknown = left.iter().flat_map(|node| node.uses.difference(&known));
    let named = unknown.filter_map(|variable| match variable {
        Variable::Named(name) => Some(*name),
        Variable::Result(_) => None,
    });
    named.into_iter().next()
}

impl<'a> Node<'a> {
    /// What is known after it, if it can be evaluated.
    fn gives_with(&self, known: &Variables<'a>) -> Variables<'a> {
        let mut given: Variables<'a> = known.union(&self.gives).copied().collect();
        loop {
            let before = given.len();
            for [one, other] in &self.pairs {
                for (from, to) in [(one, other), (other, one)] {
                    if from.uses.is_subset(&given) {
                        given.extend(&to.takes);
                    }
                }
            }
            if given.len() == before {
                return given;
            }
        }
    }
}

impl<'a> Nodes<'a, '_> {
    fn named(&self, names: impl IntoIterator<Item = &'a str>) -> Variables<'a> {
        let own = names.into_iter().filter(|name| self.own.contains(name));
        own.map(Variable::Named).collect()
    }

    /// What a negation, a comprehension or the body of `every` needs of the query around it.
    fn closure(&self, free: Vec<&'a Expr>) -> Variables<'a> {
        self.named(free.into_iter().map(|at| at.span().text()))
    }

    fn literal(&mut self, literal: &'a Literal) {
        match literal {
            Literal::SomeVars { .. } => {}
            Literal::SomeIn {
                key, value, collection, ..
            } => {
                let mut node = Node::default();
                self.operand(collection, &mut node);
                let given = self.named(key.iter().chain([value]).flat_map(|pattern| names(pattern)));
                node.gives.extend(given);
                self.all.push(node);
            }
            Literal::Expr { expr, .. } => match &**expr {
                Expr::AssignExpr { op, lhs, rhs, .. } => {
                    let mut node = Node::default();
                    self.equal(lhs, rhs, op, &mut node);
                    self.all.push(node);
                }
                other => self.whole(other),
            },
            Literal::NotExpr { expr, .. } => {
                let uses = self.closure(free(expr));
                self.all.push(Node {
                    uses,
                    ..Node::default()
                });
            }
            Literal::Every {
                key,
                value,
                domain,
                query,
                ..
            } => {
                self.whole(domain);
                let uses = self.closure(free_in_every(key.as_ref(), value, query));
                self.all.push(Node {
                    uses,
                    ..Node::default()
                });
            }
        }
    }

    /// An expression that is a statement, or evaluated like one.
    fn whole(&mut self, expr: &'a Expr) {
        let mut node = Node::default();
        match self.call(expr) {
            Some(call) => node = call,
            None => self.operand(expr, &mut node),
        }
        self.all.push(node);
    }

    /// A call or an operator, without its value.
    fn call(&mut self, expr: &'a Expr) -> Option<Node<'a>> {
        let mut node = Node::default();
        match expr {
            Expr::Call { fcn, params, .. } => {
                let arity = (self.arity)(fcn).unwrap_or(params.len());
                for (position, argument) in params.iter().enumerate() {
                    if position < arity {
                        self.operand(argument, &mut node);
                    } else {
                        // One argument more than the function takes is its result.
                        let given = self.named(names(argument));
                        node.gives.extend(given);
                    }
                }
            }
            Expr::UnaryExpr { .. }
            | Expr::BinExpr { .. }
            | Expr::BoolExpr { .. }
            | Expr::ArithExpr { .. }
            | Expr::Membership { .. }
            | Expr::AssignExpr { .. } => {
                let parts = syntax::parts(expr).exprs.into_iter();
                parts.for_each(|part| self.operand(part, &mut node));
            }
            _ => return None,
        }
        let divided = node.closures.intersection(&node.gives).next();
        if let Some(Variable::Named(name)) = divided {
            self.divided = Some(name);
        }
        Some(node)
    }

    /// Adds what a part of a statement uses and gives.
    fn operand(&mut self, expr: &'a Expr, node: &mut Node<'a>) {
        if let Some(mut call) = self.call(expr) {
            let result = self.result();
            call.gives.insert(result);
            node.uses.insert(result);
            return self.all.push(call);
        }
        let syntax::Parts { exprs, query } = syntax::parts(expr);
        match (expr, query) {
            (Expr::Var { span, .. }, _) => {
                let used = self.named([span.text()]);
                node.uses.extend(used);
            }
            (Expr::RefBrack { refr, index, .. }, _) => {
                self.operand(refr, node);
                let given = self.named(names(index));
                node.gives.extend(given);
                self.operand(index, node);
            }
            (_, Some(query)) => {
                let uses = self.closure(free_in_query(query, exprs));
                let result = self.result();
                node.uses.insert(result);
                node.closures.extend(&uses);
                self.all.push(Node {
                    uses,
                    gives: [result].into(),
                    ..Node::default()
                });
            }
            (_, None) => exprs.into_iter().for_each(|part| self.operand(part, node)),
        }
    }

    fn result(&mut self) -> Variable<'a> {
        self.results += 1;
        Variable::Result(self.results)
    }

    /// Adds the two sides of `=` or `:=`.
    fn equal(&mut self, one: &'a Expr, other: &'a Expr, op: &AssignOp, node: &mut Node<'a>) {
        if let Some(parts) = matching_parts(one, other) {
            return parts
                .into_iter()
                .for_each(|(one, other)| self.equal(one, other, op, node));
        }
        let sides = [(one, true), (other, matches!(op, AssignOp::Eq))].map(|(side, can_take)| {
            let mut part = Node::default();
            self.operand(side, &mut part);
            node.uses.extend(&part.uses);
            node.gives.extend(&part.gives);
            let takes = match can_take {
                true => self.named(names(side)),
                false => Variables::new(),
            };
            let uses = part.uses;
            Side { uses, takes }
        });
        node.pairs.push(sides);
    }
}
