//! Finds which values a template uses, and which of them must be public.
//!
//! The analysis covers all branches, whether or not a render takes them. A render with these names
//! public and all others secret therefore never fails because of a secret.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use crate::Context;
use crate::syntax::{Branch, BranchKind, Call, Command, Function, Node, Operand, Pipeline};

type Names = BTreeSet<String>;

/// The values that a template uses.
#[derive(Default)]
pub(crate) struct Analysis {
    /// The names of all values.
    pub(crate) names: Names,
    /// The names of those that must be public in the context.
    pub(crate) public: Names,
}

/// Analyzes the template `nodes` with its number of variable slots.
pub(crate) fn analyze(nodes: &[Node], slots: usize, context: Context) -> Analysis {
    let mut analyzer = Analyzer {
        analysis: Analysis::default(),
        slots: alloc::vec![Names::new(); slots],
        dot: Names::new(),
        secrets_allowed: context != Context::Url,
    };
    analyzer.nodes(nodes);
    analyzer.analysis
}

struct Analyzer {
    analysis: Analysis,
    /// For each variable, the names of the values that its value may depend on.
    slots: Vec<Names>,
    /// The same for the dot.
    dot: Names,
    /// Whether secrets may be printed here. They may not before the `?` of a URL.
    secrets_allowed: bool,
}

impl Analyzer {
    fn nodes(&mut self, nodes: &[Node]) {
        for node in nodes {
            match node {
                Node::Text(text) => self.secrets_allowed |= text.contains('?'),
                Node::Action(pipeline) => {
                    let names = self.pipeline(pipeline);
                    if pipeline.variable.is_none() && !self.secrets_allowed {
                        self.analysis.public.extend(names);
                    }
                }
                Node::Branch(branch) => self.branch(branch),
            }
        }
    }

    fn branch(&mut self, branch: &Branch) {
        let names = self.pipeline(&branch.condition);
        self.analysis.public.extend(names.iter().cloned());
        let before = self.secrets_allowed;
        if branch.kind == BranchKind::With {
            let outer = core::mem::replace(&mut self.dot, names);
            self.nodes(&branch.then);
            self.dot = outer;
        } else {
            self.nodes(&branch.then);
        }
        let then = core::mem::replace(&mut self.secrets_allowed, before);
        self.nodes(&branch.otherwise);
        self.secrets_allowed &= then;
    }

    /// The names of the values that the pipeline's value may depend on.
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
        let tested = match call.function {
            // The last argument is returned without being tested.
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
        for names in given.iter().take(tested) {
            self.analysis.public.extend(names.iter().cloned());
        }
        given.into_iter().flatten().collect()
    }

    fn operand(&mut self, operand: &Operand) -> Names {
        match operand {
            Operand::Text(_) | Operand::Bool(_) => Names::new(),
            Operand::Dot => self.dot.clone(),
            Operand::Variable(slot, _) => self.slots.get(*slot).cloned().unwrap_or_default(),
            Operand::Value(name, _) => {
                self.analysis.names.insert(name.clone());
                Names::from([name.clone()])
            }
            Operand::Pipeline(pipeline) => self.pipeline(pipeline),
        }
    }
}
