//! One run of the generators of a set: turns entries of `generators` into sets of parameters.
//!
//! Invariant: every set of parameters is charged to the budget.

use std::borrow::Cow;
use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use serde_json::Value;

use super::type_ambiguity::{self, TypeAmbiguity};
use super::{Error, clusters, flatten, git, invalid, list, matrix, merge, plugin_generator, template_error};
use crate::decode::entry::{GeneratorEntry, NestingLevel};
use crate::decode::fields::child_path;
use crate::inputs::InputError;
use crate::selector::{AllowedValues, Selector};
use crate::{
    Denial, GenerationBudget, Generator, GeneratorKind, GitTree, Inputs, Params, Spec, TemplateEngine, template, yaml,
};

const MAX_DENIALS: usize = 100;
const MAX_OPEN_TREES: usize = 64;

/// Trees by repository and revision; `None` where reading was denied.
type Trees = HashMap<(String, String), Option<Rc<OpenTree>>>;

/// State shared by all generators of one set.
pub(super) struct GeneratorRun<'a> {
    pub(super) engine: TemplateEngine,
    pub(super) inputs: &'a Inputs<'a>,
    pub(super) budget: &'a GenerationBudget,
    pub(super) denials: RefCell<Vec<Denial>>,
    /// Parameters that have, or may have, another type in Argo CD, and the first generator that
    /// makes them.
    ambiguity: RefCell<Option<(TypeAmbiguity, String)>>,
    trees: RefCell<Trees>,
}

pub(super) struct OpenTree {
    pub(super) tree: Box<dyn GitTree>,
    directories: OnceCell<Vec<String>>,
}

impl OpenTree {
    /// [`GitTree::directories`], read once.
    pub(super) fn directories(&self, budget: &GenerationBudget) -> Result<&[String], InputError> {
        if let Some(known) = self.directories.get() {
            return Ok(known);
        }
        let found = self.tree.directories(budget)?;
        Ok(self.directories.get_or_init(|| found))
    }
}

impl<'a> GeneratorRun<'a> {
    pub(super) fn new(engine: TemplateEngine, inputs: &'a Inputs<'a>, budget: &'a GenerationBudget) -> Self {
        Self {
            engine,
            inputs,
            budget,
            denials: RefCell::default(),
            ambiguity: RefCell::default(),
            trees: RefCell::default(),
        }
    }

    pub(super) fn record_type_ambiguity(&self, found: TypeAmbiguity, path: &str) {
        let mut ambiguity = self.ambiguity.borrow_mut();
        if ambiguity.as_ref().is_none_or(|(known, _)| *known < found) {
            *ambiguity = Some((found, path.to_owned()));
        }
    }

    pub(super) fn check_type_ambiguity(&self, spec: &Spec) -> Result<(), Error> {
        match &*self.ambiguity.borrow() {
            Some((ambiguity, path)) if type_ambiguity::is_observable(spec, *ambiguity) => Err(invalid(
                path,
                "types of its parameters are others to Argo CD, or cannot be told, and a template asks for them: \
                 do without `index`, `printf`, `typeOf`, `has` and the like",
            )),
            Some(_) | None => Ok(()),
        }
    }

    pub(super) fn all(&self, spec: &Spec) -> Result<Vec<Vec<Params>>, Error> {
        self.budget.charge_generators(count(&spec.generators))?;
        let mut made = Vec::new();
        for (index, generator) in spec.generators.iter().enumerate() {
            let path = format!("spec.generators[{index}]");
            let entry = GeneratorEntry::open(&generator.raw, &path)?;
            if entry.kinds.is_empty() && entry.selector.is_none() {
                return Err(invalid(&path, "the kind of this generator is not known"));
            }
            let selector = post_selector(&entry, &path)?;
            for (name, settings) in entry.kinds {
                let path = child_path(&path, name.as_ref());
                let mut params = self.kind(name, settings, NestingLevel::Top, &path)?;
                self.keep_selected(&mut params, selector.as_ref())?;
                made.push(params);
            }
        }
        Ok(made)
    }

    /// Runs a child of a matrix or merge; if there are `given` parameters, the child is rendered
    /// with them. As upstream, the selector is not rendered.
    pub(super) fn child(
        &self,
        raw: &Value,
        level: NestingLevel,
        path: &str,
        given: Option<&Params>,
    ) -> Result<Vec<Params>, Error> {
        self.budget.check_deadline()?;
        let entry = GeneratorEntry::open(raw, path)?;
        let name = match entry.kinds.as_slice() {
            [(name, _)] => *name,
            [] => {
                let what = "child generator generated no parameters: its kind is not known";
                return Err(invalid(path, what));
            }
            [..] => return Err(invalid(path, "found more than one generator in matrix.Generators")),
        };
        let selector = post_selector(&entry, path)?;
        // Without parameters nothing is rendered, as upstream: `{{` then stays as it is.
        let rendered = match given.filter(|given| !given.is_empty()) {
            None => Cow::Borrowed(raw),
            Some(given) => {
                let rendered = template::render_generator(self.engine, raw, given, self.budget);
                Cow::Owned(rendered.map_err(|error| template_error(path, error))?)
            }
        };
        let settings = rendered.get(name.as_ref()).unwrap_or(&Value::Null);
        let mut params = self.kind(name, settings, level, &child_path(path, name.as_ref()))?;
        self.keep_selected(&mut params, selector.as_ref())?;
        Ok(params)
    }

    fn kind(
        &self,
        name: GeneratorKind,
        settings: &Value,
        level: NestingLevel,
        path: &str,
    ) -> Result<Vec<Params>, Error> {
        let children = || {
            let deep = "child generator generated no parameters: matrix and merge can be nested only once";
            level.child_level().ok_or_else(|| invalid(path, deep))
        };
        match name {
            GeneratorKind::List => list::parameters(self, settings, path),
            GeneratorKind::Clusters => clusters::parameters(self, settings, path),
            GeneratorKind::Git => git::parameters(self, settings, path),
            GeneratorKind::Matrix => matrix::parameters(self, settings, children()?, path),
            GeneratorKind::Merge => merge::parameters(self, settings, children()?, path),
            GeneratorKind::ScmProvider
            | GeneratorKind::PullRequest
            | GeneratorKind::ClusterDecisionResource
            | GeneratorKind::Plugin => plugin_generator::parameters(self, name, settings, path),
        }
    }

    fn keep_selected(&self, params: &mut Vec<Params>, selector: Option<&Selector>) -> Result<(), Error> {
        let Some(selector) = selector else {
            return Ok(());
        };
        params.retain(|params| {
            // A selector can be long. Once time is up nothing matches here, and the check below
            // returns the error.
            self.budget.check_deadline().is_ok() && selector.matches_with(|key| flatten::lookup(params, key))
        });
        Ok(self.budget.check_deadline()?)
    }

    /// Charges one set of parameters of this size to the budget.
    pub(super) fn charge(&self, bytes: u64) -> Result<(), Error> {
        self.budget.charge_parameters(1)?;
        Ok(self.budget.charge_bytes(bytes)?)
    }

    /// Parses YAML and charges its bytes while it parses; `wrong` makes the error for invalid
    /// YAML.
    pub(super) fn yaml(&self, text: &str, wrong: impl Fn(&str) -> Error) -> Result<Value, Error> {
        self.budget.check_deadline()?;
        let mut charge = |bytes| self.budget.charge_bytes(bytes);
        yaml::read(text, yaml::DuplicateKeys::Refused, &mut charge).map_err(|error| match error {
            yaml::Error::Syntax(what) => wrong(&format!("cannot be read: {what}")),
            yaml::Error::Limit(exceeded) => Error::Exceeded(exceeded),
        })
    }

    /// Records a denial. Returns whether the read is allowed.
    pub(super) fn record_denial(&self, answer: Result<(), Denial>) -> bool {
        let Err(denial) = answer else {
            return true;
        };
        let denial = denial.truncated();
        let mut denials = self.denials.borrow_mut();
        if denials.len() < MAX_DENIALS && !denials.contains(&denial) {
            denials.push(denial);
        }
        false
    }

    /// Opens the tree of a repository; `None` if the caller may not read it. The tree stays the
    /// same for the whole run, unless the run opens more than [`MAX_OPEN_TREES`] trees.
    pub(super) fn tree(&self, url: &str, revision: &str) -> Result<Option<Rc<OpenTree>>, InputError> {
        let key = (url.to_owned(), revision.to_owned());
        // The same tree for the whole run, even if the branch moves meanwhile.
        if let Some(known) = self.trees.borrow().get(&key) {
            return Ok(known.clone());
        }
        // Asked before the repository is contacted. A denial is kept like a tree, so that it is asked once.
        let opened = match self.record_denial(self.inputs.authorizer.check_repository(url)) {
            true => Some(Rc::new(OpenTree {
                tree: self.inputs.repositories.open(url, revision, self.budget)?,
                directories: OnceCell::new(),
            })),
            false => None,
        };
        let mut trees = self.trees.borrow_mut();
        if trees.len() >= MAX_OPEN_TREES {
            trees.clear();
        }
        trees.insert(key, opened.clone());
        Ok(opened)
    }
}

/// Number of generators in all entries, including children.
fn count(generators: &[Generator]) -> u64 {
    let all = generators.iter().map(|generator| count_entry(&generator.raw));
    all.fold(0, u64::saturating_add)
}

fn count_entry(raw: &Value) -> u64 {
    let combined = [GeneratorKind::Matrix.as_ref(), GeneratorKind::Merge.as_ref()];
    let members = raw.as_object().into_iter().flatten();
    let kinds = members.filter(|(key, _)| *key != "selector");
    let one = |(key, settings): (&String, &Value)| {
        let children = settings.get("generators").filter(|_| combined.contains(&key.as_str()));
        let children = children.and_then(Value::as_array).into_iter().flatten();
        children.map(count_entry).fold(1, u64::saturating_add)
    };
    kinds.map(one).fold(0, u64::saturating_add)
}

fn post_selector(entry: &GeneratorEntry<'_>, path: &str) -> Result<Option<Selector>, Error> {
    let read = entry
        .selector
        .map(|selector| Selector::read(selector, AllowedValues::Any));
    read.transpose().map_err(|error| Error::selector(path, &error))
}
