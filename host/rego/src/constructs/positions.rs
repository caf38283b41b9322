//! Whether an index could be the text of a number.
//!
//! In data, OPA takes such a text for a position in a list, and the engine does not.

use regorus::unstable::Expr;
use serde_json::Value as Json;

use super::{Checker, items, variables};
use crate::builtins;
use crate::growth::variables::{Source, Variable};
use crate::syntax::{self, Step, fixed_start};

/// Most expressions and values of data that are looked at for the indices of a module.
pub(super) const MAX_STEPS: u64 = 4_000_000;

/// A part of a value.
#[derive(Clone, Copy)]
struct Part {
    /// Number of collections around it.
    levels: usize,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A key, or the value, of a collection.
    Any,
    /// A key of what is there.
    Key,
}

impl Part {
    const WHOLE: Self = Self {
        levels: 0,
        kind: Kind::Any,
    };

    fn is_whole(self) -> bool {
        self.levels == 0 && self.kind == Kind::Any
    }

    fn is_key(self) -> bool {
        self.levels == 0 && self.kind == Kind::Key
    }

    /// The part, of an item that has it.
    fn of_item(self) -> Self {
        Self {
            levels: self.levels.saturating_sub(1),
            ..self
        }
    }

    /// The part, of what has the value so many levels inside.
    fn within(self, levels: usize) -> Self {
        Self {
            levels: self.levels + levels,
            ..self
        }
    }
}

/// Whether OPA takes a text for a position in a list.
pub(super) fn is_position(text: &str) -> bool {
    let (whole, zeros) = text.split_once('.').unwrap_or((text, ""));
    whole.parse::<i64>().is_ok() && zeros.bytes().all(|digit| digit == b'0')
}

/// What an index of a reference indexes.
fn indexed_by<'e>(reference: &'e Expr, index: &Expr) -> Option<&'e Expr> {
    let mut expr = reference;
    loop {
        match expr {
            Expr::RefBrack { refr, index: own, .. } if std::ptr::eq(&raw const **own, index) => return Some(refr),
            Expr::RefBrack { refr, .. } | Expr::RefDot { refr, .. } => expr = refr,
            _ => return None,
        }
    }
}

/// Whether a function gives only numbers, or lists of them.
fn gives_numbers(function: &Expr) -> bool {
    let name = syntax::dotted(function);
    let numeric = [
        "abs",
        "ceil",
        "count",
        "floor",
        "indexof",
        "indexof_n",
        "numbers.range",
        "numbers.range_step",
        "round",
        "strings.count",
        "sum",
        "to_number",
    ];
    numeric.contains(&name.as_str()) && builtins::arity(&name).is_some()
}

impl<'a> Checker<'a> {
    /// Whether an index can be a text that is a whole number.
    pub(super) fn may_be_position(&self, index: &Expr) -> bool {
        self.has_position(index, Part::WHOLE, &mut Vec::new())
    }

    /// Whether an index of a reference takes all keys of what it indexes: its place is the only one that can
    /// bind its variables.
    pub(super) fn iterates(&self, reference: &Expr, index: &Expr) -> bool {
        let Some(indexed) = indexed_by(reference, index) else {
            return false;
        };
        let is_own = |variable: &Variable<'a>| {
            let origins = self.variables.origins.get(variable).map(Vec::as_slice);
            matches!(origins, Some([(Source::Key(collection), _)]) if std::ptr::eq(*collection, indexed))
        };
        let is_free = |name: &&Expr| {
            let text = name.span().text();
            let meanings = self.variables.meanings(name);
            text == "_" || (!self.global.contains(text) && !meanings.is_empty() && meanings.iter().all(is_own))
        };
        let names = variables(index);
        !names.is_empty() && names.iter().all(is_free)
    }

    /// Counts steps. False if there were too many.
    fn may_go_on(&self, steps: u64) -> bool {
        let left = self.steps.get().checked_sub(steps);
        self.steps.set(left.unwrap_or(0));
        left.is_some()
    }

    /// - `open`: variables whose values are being looked for. What leads back to one adds nothing.
    fn has_position(&self, expr: &Expr, part: Part, open: &mut Vec<Variable<'a>>) -> bool {
        // Unknown counts as yes, so that what is not looked at is refused.
        if !self.may_go_on(1) {
            return true;
        }
        match expr {
            Expr::String { .. } | Expr::RawString { .. } => {
                part.is_whole() && syntax::text(expr).is_none_or(is_position)
            }
            Expr::Number { .. }
            | Expr::Bool { .. }
            | Expr::Null { .. }
            | Expr::UnaryExpr { .. }
            | Expr::BoolExpr { .. }
            | Expr::Membership { .. }
            | Expr::AssignExpr { .. } => false,
            Expr::Array { .. }
            | Expr::Set { .. }
            | Expr::Object { .. }
            | Expr::ArrayCompr { .. }
            | Expr::SetCompr { .. }
            | Expr::ObjectCompr { .. }
            | Expr::BinExpr { .. }
            | Expr::ArithExpr { .. }
                if part.is_whole() =>
            {
                false
            }
            Expr::Array { .. } | Expr::ArrayCompr { .. } if part.is_key() => false,
            // The keys of a set are its items.
            Expr::Array { .. }
            | Expr::Set { .. }
            | Expr::Object { .. }
            | Expr::ArrayCompr { .. }
            | Expr::SetCompr { .. }
            | Expr::ObjectCompr { .. } => {
                let part = if part.is_key() { Part::WHOLE } else { part.of_item() };
                let mut parts = syntax::parts(expr).exprs.into_iter();
                parts.any(|item| self.has_position(item, part, open))
            }
            Expr::BinExpr { lhs, rhs, .. } | Expr::ArithExpr { lhs, rhs, .. } => {
                self.has_position(lhs, part, open) || self.has_position(rhs, part, open)
            }
            Expr::Call { fcn, .. } => !gives_numbers(fcn),
            Expr::Var { .. } | Expr::RefDot { .. } | Expr::RefBrack { .. } => self.reference_has(expr, part, open),
        }
    }

    fn reference_has(&self, expr: &Expr, part: Part, open: &mut Vec<Variable<'a>>) -> bool {
        let (base, steps) = (syntax::base(expr), syntax::steps(expr));
        let Expr::Var { span, .. } = base else {
            return self.has_position(base, part.within(steps.len()), open);
        };
        let variables = self.variables.meanings(base);
        let is_global = self.global.contains(span.text());
        // A variable can have the name of an import.
        let is_known = |variable: &Variable<'a>| !is_global || self.variables.origins.contains_key(variable);
        let mut known = variables.iter().filter(|variable| is_known(variable));
        variables.is_empty()
            || (is_global && self.data_has(expr, &steps, part))
            || known.any(|variable| self.variable_has(*variable, part.within(steps.len()), open))
    }

    fn variable_has(&self, variable: Variable<'a>, part: Part, open: &mut Vec<Variable<'a>>) -> bool {
        if open.contains(&variable) {
            return false;
        }
        let Some(origins) = self.variables.origins.get(&variable) else {
            return true;
        };
        open.push(variable);
        let found = origins.iter().any(|(source, levels)| match source {
            Source::Value(expr) => self.has_position(expr, part.within(*levels), open),
            Source::Key(expr) if *levels == 0 && part.is_whole() => {
                let key = Part {
                    levels: 0,
                    kind: Kind::Key,
                };
                self.has_position(expr, key, open)
            }
            Source::Key(_) | Source::Argument(_) => true,
        });
        open.pop();
        found
    }

    /// Whether data has such a part. Rules and the input can.
    fn data_has(&self, expr: &Expr, steps: &[Step<'_>], part: Part) -> bool {
        let Some(path) = fixed_start(expr) else { return true };
        let path = match path.split_first() {
            Some((root, below)) if root == "data" => below.to_vec(),
            Some((name, below)) => match self.imports.get(name).and_then(|path| path.split_first()) {
                Some((root, start)) if root == "data" => start.iter().chain(below).cloned().collect(),
                _ => return true,
            },
            None => return true,
        };
        if self.is_rule(&path) {
            return true;
        }
        let Some(start) = path.iter().try_fold(self.data, |at, name| at.get(name)) else {
            return false;
        };
        let mut found = vec![start];
        for step in steps.iter().skip_while(|step| step.index().is_none()) {
            found = match step {
                Step::Fixed(name) => found.into_iter().filter_map(|data| data.get(name)).collect(),
                Step::Index(_) => found.into_iter().flat_map(items).collect(),
            };
            if !self.may_go_on(u64::try_from(found.len()).unwrap_or(u64::MAX)) {
                return true;
            }
        }
        found.into_iter().any(|data| self.json_has(data, part))
    }

    fn json_has(&self, json: &Json, part: Part) -> bool {
        if !self.may_go_on(1) {
            return true;
        }
        match json {
            Json::String(text) => part.is_whole() && is_position(text),
            Json::Array(_) | Json::Object(_) if part.is_whole() => false,
            Json::Array(_) if part.is_key() => false,
            Json::Object(fields) if part.is_key() => fields.keys().any(|key| is_position(key)),
            Json::Array(items) => items.iter().any(|item| self.json_has(item, part.of_item())),
            Json::Object(fields) => {
                let part = part.of_item();
                let mut fields = fields.iter();
                fields.any(|(key, value)| (part.is_whole() && is_position(key)) || self.json_has(value, part))
            }
            Json::Null | Json::Bool(_) | Json::Number(_) => false,
        }
    }
}
