//! Estimates from the parsed tree, without evaluating it, how much work an expression can do at
//! most. The result is how long input lists may be for the work to stay bounded.
//!
//! Like Kubernetes' estimate, this one gives each node a cost and multiplies it by the length of
//! what a comprehension iterates over. It also counts copies, so that it notices that
//! `l.map(x, x + x).map(x, x + x)…` doubles. A step is about 50 ns or 64 bytes.

use cel::common::ast::{ComprehensionExpr, Expr, IdedExpr, LiteralValue, operators};

use super::{Error, is_empty_list, parts};

/// Steps one evaluation may take: about 100 ms, 128 MB, in the worst case.
const MAX_STEPS: u64 = 2_000_000;
/// Lengths of input lists to try, longest first.
const LENGTHS: [u64; 5] = [4096, 1024, 256, 64, 16];
/// Steps to copy a whole variable: 256 KiB in pieces of 64 bytes.
const VARIABLE_COPY_STEPS: u64 = 4096;
/// Steps to copy the longest text a variable can hold: 16 KiB.
const TEXT_COPY_STEPS: u64 = super::input::MAX_TEXT_BYTES as u64 / 64;

/// How many items an input list may have. Fails if even the shortest length is too much work.
pub(super) fn items_allowed(root: &IdedExpr) -> Result<usize, Error> {
    let mut worst = (0, 0);
    for items in LENGTHS {
        let estimate = Estimator {
            items,
            scopes: Vec::new(),
        }
        .visit(root);
        let steps = estimate.steps.saturating_add(estimate.copy_steps);
        if steps <= MAX_STEPS {
            return Ok(usize::try_from(items).unwrap_or(usize::MAX));
        }
        worst = (steps, items);
    }
    Err(Error::TooMuchWork {
        observed: worst.0,
        items: worst.1,
        allowed: MAX_STEPS,
    })
}

/// Upper bounds on the cost of a value, known before evaluation.
#[derive(Clone, Copy, Debug)]
struct Estimate {
    steps: u64,
    copy_steps: u64,
    /// Items, if it is a list or map.
    items: u64,
    /// Steps to copy one item, averaged over a whole iteration.
    item_copy_steps: u64,
    /// Steps to copy the longest text it is or holds.
    text: u64,
    /// Whether it can only be a text, a number or an error.
    scalar: bool,
}

impl Estimate {
    const ONE: Self = Self {
        steps: 1,
        copy_steps: 1,
        items: 0,
        item_copy_steps: 1,
        text: 1,
        scalar: true,
    };

    /// A boolean or a number.
    const fn small(steps: u64) -> Self {
        Self { steps, ..Self::ONE }
    }

    /// A text, or another value without items.
    const fn text(steps: u64, copy_steps: u64) -> Self {
        Self {
            steps,
            copy_steps,
            text: copy_steps,
            ..Self::ONE
        }
    }

    /// Steps to copy it as an operand beside a scalar: at most one text, as a list there is an
    /// error.
    fn as_text(self) -> u64 {
        self.copy_steps.min(self.text)
    }
}

#[derive(Debug)]
struct Scope<'e> {
    name: &'e str,
    /// Steps to copy it inside its own loop.
    loop_copy_steps: u64,
    /// Steps to copy it inside a nested loop, where it is copied again and again.
    nested_copy_steps: u64,
    /// Steps to copy the longest text in it.
    text: u64,
    level: usize,
}

struct Estimator<'e> {
    items: u64,
    scopes: Vec<Scope<'e>>,
}

impl<'e> Estimator<'e> {
    fn visit(&mut self, expr: &'e IdedExpr) -> Estimate {
        match &expr.expr {
            Expr::Unspecified | Expr::Struct(_) => Estimate::ONE,
            Expr::Literal(literal) => {
                let bytes = match literal {
                    LiteralValue::String(text) => text.inner().len(),
                    LiteralValue::Bytes(bytes) => bytes.inner().len(),
                    _ => 0,
                };
                Estimate::text(1, 1 + bytes as u64 / 64)
            }
            Expr::Ident(name) => self.ident(name),
            Expr::Select(select) => {
                let of = self.visit(&select.operand);
                if select.test {
                    Estimate::small(of.steps + 1)
                } else {
                    self.part(of)
                }
            }
            Expr::List(list) => literal(&self.parts(expr), list.elements.len() as u64),
            Expr::Map(map) => literal(&self.parts(expr), map.entries.len() as u64),
            Expr::Call(call) => {
                let parts = self.parts(expr);
                self.call(&call.func_name, &parts)
            }
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
        }
    }

    fn parts(&mut self, expr: &'e IdedExpr) -> Vec<Estimate> {
        parts(expr).into_iter().map(|part| self.visit(part)).collect()
    }

    fn ident(&self, name: &str) -> Estimate {
        let level = self.scopes.last().map_or(0, |scope| scope.level);
        let scope = self.scopes.iter().rev().find(|scope| scope.name == name);
        let (copy_steps, text) = match scope {
            Some(scope) if scope.level == level => (scope.loop_copy_steps, scope.text),
            Some(scope) => (scope.nested_copy_steps, scope.text),
            None => (VARIABLE_COPY_STEPS, TEXT_COPY_STEPS),
        };
        Estimate {
            copy_steps,
            items: self.items,
            text,
            scalar: false,
            ..Estimate::ONE
        }
    }

    /// A field or an item of a value costs at most as much to copy as the whole.
    fn part(&self, of: Estimate) -> Estimate {
        Estimate {
            steps: of.steps.saturating_add(1),
            items: self.items.max(of.items),
            scalar: false,
            ..of
        }
    }

    fn call(&self, name: &str, parts: &[Estimate]) -> Estimate {
        let sum = |of: fn(&Estimate) -> u64| parts.iter().map(of).fold(0, u64::saturating_add);
        let most = |of: fn(&Estimate) -> u64| parts.iter().map(of).max().unwrap_or(0);
        let own_steps = sum(|part| part.steps).saturating_add(1);
        let scalar = parts.iter().any(|part| part.scalar);
        let texts = parts.iter().map(|part| part.as_text()).fold(0, u64::saturating_add);
        let first = parts.first().copied().unwrap_or(Estimate::ONE);
        let second = parts.get(1).copied();
        let plus = |steps: u64| own_steps.saturating_add(steps);
        match name {
            operators::ADD if scalar => Estimate::text(plus(texts), texts),
            operators::ADD => {
                let copy_steps = sum(|part| part.copy_steps);
                Estimate {
                    steps: plus(copy_steps),
                    copy_steps,
                    items: sum(|part| part.items),
                    item_copy_steps: most(|part| part.item_copy_steps),
                    text: sum(|part| part.text),
                    scalar: false,
                }
            }
            operators::CONDITIONAL | "orValue" => Estimate {
                steps: own_steps,
                copy_steps: most(|part| part.copy_steps),
                items: most(|part| part.items),
                item_copy_steps: most(|part| part.item_copy_steps),
                text: most(|part| part.text),
                scalar: name == operators::CONDITIONAL && parts.iter().all(|part| part.scalar),
            },
            operators::INDEX | operators::OPT_INDEX | operators::OPT_SELECT => Estimate {
                steps: own_steps,
                ..self.part(first)
            },
            "dyn" | "value" => Estimate {
                steps: own_steps,
                ..first
            },
            operators::IN => {
                let items = second.unwrap_or(Estimate::ONE).items;
                Estimate::small(plus(items.saturating_add(first.as_text())))
            }
            operators::EQUALS | operators::NOT_EQUALS => {
                // A comparison ends where the smaller value does.
                let smallest = parts.iter().map(|part| part.copy_steps).min().unwrap_or(1);
                Estimate::small(plus(smallest))
            }
            "@matches" => Estimate::small(plus(20 + first.as_text().saturating_mul(8))),
            "split" => {
                let text = first.as_text();
                // A step of text is 64 bytes, and each byte may become a piece.
                let items = text.saturating_mul(64);
                Estimate {
                    steps: plus(items),
                    copy_steps: items,
                    items,
                    item_copy_steps: 1,
                    text,
                    scalar: false,
                }
            }
            "join" => {
                let separators = second.map_or(0, |part| first.items.saturating_mul(part.as_text()));
                let copy_steps = first.copy_steps.saturating_add(separators);
                Estimate::text(plus(copy_steps), copy_steps)
            }
            "lowerAscii" | "upperAscii" | "trim" | "substring" | "string" => {
                Estimate::text(plus(first.as_text()), first.as_text())
            }
            "contains" | "startsWith" | "endsWith" | "indexOf" | "lastIndexOf" => Estimate::small(plus(texts / 4)),
            _ => Estimate::small(own_steps),
        }
    }

    fn comprehension(&mut self, comprehension: &'e ComprehensionExpr) -> Estimate {
        let range = self.visit(&comprehension.iter_range);
        let init = self.visit(&comprehension.accu_init);
        let level = self.scopes.last().map_or(0, |scope| scope.level) + 1;
        let before = self.scopes.len();
        for name in [&comprehension.iter_var].into_iter().chain(&comprehension.iter_var2) {
            self.scopes.push(Scope {
                name,
                loop_copy_steps: range.item_copy_steps,
                nested_copy_steps: range.copy_steps,
                text: range.text,
                level,
            });
        }
        self.scopes.push(Scope {
            name: &comprehension.accu_var,
            loop_copy_steps: 1,
            nested_copy_steps: 1,
            text: 1,
            level,
        });
        let condition = self.visit(&comprehension.loop_cond);
        let step = self.visit(&comprehension.loop_step);
        let result = self.visit(&comprehension.result);
        self.scopes.truncate(before);
        let iteration = condition.steps.saturating_add(step.steps);
        let loop_steps = range.items.saturating_mul(iteration);
        let steps = [init.steps, range.steps, loop_steps, result.steps];
        let steps = steps.into_iter().fold(1, u64::saturating_add);
        if is_empty_list(&comprehension.accu_init.expr) {
            let copy_steps = range.items.saturating_mul(step.copy_steps);
            return Estimate {
                steps,
                copy_steps,
                items: range.items,
                item_copy_steps: step.copy_steps,
                text: step.text,
                scalar: false,
            };
        }
        Estimate::small(steps)
    }
}

fn literal(parts: &[Estimate], items: u64) -> Estimate {
    let most = |of: fn(&Estimate) -> u64| parts.iter().map(of).max().unwrap_or(1);
    let copy_steps = parts.iter().map(|part| part.copy_steps).fold(1, u64::saturating_add);
    let all_steps = parts.iter().map(|part| part.steps);
    Estimate {
        steps: all_steps.fold(copy_steps, u64::saturating_add),
        copy_steps,
        items,
        item_copy_steps: most(|part| part.copy_steps),
        text: most(|part| part.text),
        scalar: false,
    }
}
