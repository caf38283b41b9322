//! Which variables of a rule are elements of a collection.

use std::collections::BTreeMap;

use regorus::unstable::{AssignOp, Expr, Literal, Query, Rule, RuleHead};

use super::{indices, names};
use crate::syntax;

#[derive(Default)]
pub(super) struct Elements<'a> {
    /// Number of places that can give a variable its value.
    origins: BTreeMap<&'a str, usize>,
    collections: BTreeMap<&'a str, &'a Expr>,
}

impl<'a> Elements<'a> {
    pub(super) fn of(rule: &'a Rule) -> Self {
        let mut elements = Self::default();
        let Rule::Spec { head, bodies, .. } = rule else {
            return elements;
        };
        let (name, arguments, value) = syntax::head_parts(head);
        if let RuleHead::Func { .. } = head {
            arguments.iter().for_each(|argument| elements.add(argument));
        }
        for head in value.into_iter().chain(indices(name)) {
            elements.expr(head);
        }
        for body in bodies {
            elements.query(&body.query);
            if let Some(assign) = &body.assign {
                elements.expr(&assign.value);
            }
        }
        elements
    }

    fn add(&mut self, pattern: &'a Expr) {
        for name in names(pattern) {
            *self.origins.entry(name).or_default() += 1;
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
                        self.add(pattern);
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
                        *self.origins.entry(name.text()).or_default() += 1;
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
                self.add(lhs);
                if *op == AssignOp::Eq {
                    self.add(rhs);
                }
            }
            Expr::RefBrack { index, .. } => self.add(index),
            Expr::Call { params, .. } => {
                // The last can be the result.
                if let Some(last) = params.last().filter(|last| matches!(last.as_ref(), Expr::Var { .. }))
                    && !self.origins.contains_key(last.span().text())
                {
                    self.add(last);
                }
            }
            _ => {}
        }
        let syntax::Parts { exprs, query } = syntax::parts(expr);
        exprs.into_iter().for_each(|part| self.expr(part));
        query.into_iter().for_each(|query| self.query(query));
    }

    /// The collection of which a variable is an element, if that alone gives it its value.
    pub(super) fn list_of(&self, name: &str) -> Option<&'a Expr> {
        let is_only = self.origins.get(name) == Some(&1);
        self.collections.get(name).copied().filter(|_| is_only)
    }
}
