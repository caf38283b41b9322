//! Which values a template uses, and which of them decide something.
//!
//! What is found holds for all values: a name that decides only in a branch not
//! taken is among them too. So a render with these names public and all others
//! secret never fails for a secret.
//!
//! In: nodes. Out: names. Never: values.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use crate::Context;
use crate::syntax::{Branch, BranchKind, Call, Command, Function, Node, Operand, Pipeline};

type Names = BTreeSet<String>;

/// What was found.
#[derive(Default)]
pub(crate) struct Found {
    /// All names.
    pub(crate) names: Names,
    /// Those that decide something in the context.
    pub(crate) public: Names,
}

/// Walks all of a template.
pub(crate) fn analyze(nodes: &[Node], slots: usize, context: Context) -> Found {
    let mut walk = Walk {
        found: Found::default(),
        slots: alloc::vec![Names::new(); slots],
        dot: Names::new(),
        free: context != Context::Url,
    };
    walk.nodes(nodes);
    walk.found
}

struct Walk {
    found: Found,
    /// What may have gone into each variable.
    slots: Vec<Names>,
    /// What may have gone into the dot.
    dot: Names,
    /// Whether secrets may be printed here: not before the `?` of a URL.
    free: bool,
}

impl Walk {
    fn nodes(&mut self, nodes: &[Node]) {
        for node in nodes {
            match node {
                Node::Text(text) => self.free |= text.contains('?'),
                Node::Action(pipeline) => {
                    let names = self.pipeline(pipeline);
                    if pipeline.variable.is_none() && !self.free {
                        self.found.public.extend(names);
                    }
                }
                Node::Branch(branch) => self.branch(branch),
            }
        }
    }

    fn branch(&mut self, branch: &Branch) {
        let names = self.pipeline(&branch.condition);
        self.found.public.extend(names.iter().cloned());
        let before = self.free;
        if branch.kind == BranchKind::With {
            let outer = core::mem::replace(&mut self.dot, names);
            self.nodes(&branch.then);
            self.dot = outer;
        } else {
            self.nodes(&branch.then);
        }
        let then = core::mem::replace(&mut self.free, before);
        self.nodes(&branch.otherwise);
        self.free &= then;
    }

    /// The names that may go into the pipeline's value.
    fn pipeline(&mut self, pipeline: &Pipeline) -> Names {
        let mut names = match &pipeline.first {
            Command::Operand(operand) => self.operand(operand),
            Command::Call(call) => self.call(call, None),
        };
        for call in &pipeline.calls {
            names = self.call(call, Some(names));
        }
        if let Some(slot) = pipeline.variable.and_then(|slot| self.slots.get_mut(slot)) {
            slot.extend(names.iter().cloned());
        }
        names
    }

    fn call(&mut self, call: &Call, piped: Option<Names>) -> Names {
        let mut given: Vec<Names> = call.arguments.iter().map(|operand| self.operand(operand)).collect();
        given.extend(piped);
        let deciding = match call.function {
            // The last one is only handed on.
            Function::And | Function::Or => given.len().saturating_sub(1),
            Function::Not | Function::Eq | Function::Ne => given.len(),
            Function::Base64
            | Function::Index
            | Function::Json
            | Function::PathEscape
            | Function::Printf
            | Function::Trim
            | Function::UrlQuery => 0,
        };
        for names in given.iter().take(deciding) {
            self.found.public.extend(names.iter().cloned());
        }
        given.into_iter().flatten().collect()
    }

    fn operand(&mut self, operand: &Operand) -> Names {
        match operand {
            Operand::Text(_) | Operand::Bool(_) => Names::new(),
            Operand::Dot => self.dot.clone(),
            Operand::Variable(slot, _) => self.slots.get(*slot).cloned().unwrap_or_default(),
            Operand::Value(name, _) => {
                self.found.names.insert(name.clone());
                Names::from([name.clone()])
            }
            Operand::Pipeline(pipeline) => self.pipeline(pipeline),
        }
    }
}
