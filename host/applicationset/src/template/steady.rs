//! Whether the projects and names of what a set generates stay what they are.
//!
//! In: a set's spec. Out: what makes them change from one rendering to the next. Never:
//! a no where a clock, chance, or what somebody else writes decides a project, or
//! a clock or chance a name.
//!
//! A set is judged once and rendered again and again, by Argo CD's controller and with
//! nobody asked. A project that is written out stays; so does one that the elements of
//! lists give. `templatePatch` cannot change it. Names may follow what generators read.

use gotmpl::parse::{BranchNode, Expr, ListNode, Node, Parser, PipeNode};
use serde_json::Value;

use super::Role;
use super::go::Go;
use crate::{Engine, KindName, MissingKey, Spec};

/// Functions that give something else each time: by the clock, by chance, or, to Argo
/// CD, by the order of a Go map. Those of dates take the clock where they are given no
/// date.
const UNSTEADY: [&str; 29] = [
    "ago",
    "bcrypt",
    "buildCustomCert",
    "date",
    "dateInZone",
    "date_in_zone",
    "durationRound",
    "encryptAES",
    "genCA",
    "genCAWithKey",
    "genPrivateKey",
    "genSelfSignedCert",
    "genSelfSignedCertWithKey",
    "genSignedCert",
    "genSignedCertWithKey",
    "htmlDate",
    "htmlDateInZone",
    "htpasswd",
    "keys",
    "now",
    "randAlpha",
    "randAlphaNum",
    "randAscii",
    "randBytes",
    "randInt",
    "randNumeric",
    "shuffle",
    "uuidv4",
    "values",
];

/// Functions that give something else at times: Argo CD keeps the length of a slug in one
/// place for all sets that it renders at the same time.
const AT_TIMES: [&str; 1] = ["slugify"];

/// What makes a project or a name change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changing {
    /// A function in the text that gives the project.
    Function(&'static str),
    /// A function in a text that gives the name.
    Name {
        /// It.
        function: &'static str,
        /// The text, from the root of the object.
        place: &'static str,
    },
    /// Parameters of a generator that asks others.
    Generator {
        /// It, from the root of the object.
        path: String,
        /// Its kind.
        kind: KindName,
    },
    /// Parameters that a text of a generator makes.
    Parameters {
        /// The generator, from the root of the object.
        path: String,
    },
}

/// Everything that makes projects of a set change, and what of a clock or of chance makes
/// its names change.
pub fn changing(spec: &Spec) -> Vec<Changing> {
    let mut found = Vec::new();
    for (index, generator) in spec.generators.iter().enumerate() {
        for kind in &generator.kinds {
            let own = kind.settings.get("template");
            functions(spec, own, &mut found);
            let is_project = is_templated(own, &spec.template);
            if !is_project && !is_name_templated(spec, own) {
                continue;
            }
            let path = format!("spec.generators[{index}].{}", kind.name.as_str());
            let mut read = Vec::new();
            inputs(spec.engine, (kind.name, &kind.settings), (0, path), &mut read);
            // What others write may give a name, but what a clock makes may not.
            read.retain(|one| is_project || matches!(one, Changing::Parameters { .. }));
            for one in read {
                add(&mut found, one);
            }
        }
    }
    found
}

fn add(found: &mut Vec<Changing>, one: Changing) {
    if !found.contains(&one) {
        found.push(one);
    }
}

/// The template of a generator, then that of the set: what the former has, counts.
fn templates<'a>(own: Option<&'a Value>, base: &'a Value) -> impl Iterator<Item = &'a Value> {
    own.into_iter().chain(std::iter::once(base))
}

/// The text of that place.
fn text<'a>(own: Option<&'a Value>, base: &'a Value, place: &str) -> &'a str {
    let texts = templates(own, base).filter_map(|template| template.pointer(place)?.as_str());
    let mut texts = texts.filter(|text| !text.is_empty());
    texts.next().unwrap_or_default()
}

/// Whether parameters decide the project; keys are templates too.
fn is_templated(own: Option<&Value>, base: &Value) -> bool {
    let has_keys = |object: Option<&Value>| {
        let mut fields = object.and_then(Value::as_object).into_iter().flatten();
        fields.any(|(key, _)| key.contains("{{"))
    };
    text(own, base, "/spec/project").contains("{{")
        || templates(own, base).any(|template| has_keys(Some(template)) || has_keys(template.get("spec")))
}

/// The functions that make the project or the name another one each time.
fn functions(spec: &Spec, own: Option<&Value>, found: &mut Vec<Changing>) {
    if spec.engine == Engine::Fast {
        return;
    }
    let project = text(own, &spec.template, "/spec/project");
    if let Some(name) = called(project, &UNSTEADY).or_else(|| called(project, &AT_TIMES)) {
        add(found, Changing::Function(name));
    }
    // SECURITY: what is called `a` today may be called as somebody else's Application
    // tomorrow, and Argo CD's controller would take that one over.
    let name = text(own, &spec.template, "/metadata/name");
    if let Some(function) = called(name, &UNSTEADY) {
        let place = "spec.template.metadata.name";
        add(found, Changing::Name { function, place });
    }
    if let Some(function) = spec.template_patch.as_deref().and_then(|text| called(text, &UNSTEADY)) {
        let place = "spec.templatePatch";
        add(found, Changing::Name { function, place });
    }
}

/// Whether parameters may decide the name.
fn is_name_templated(spec: &Spec, own: Option<&Value>) -> bool {
    let patch = spec.template_patch.as_deref().unwrap_or_default();
    text(own, &spec.template, "/metadata/name").contains("{{") || patch.contains("{{")
}

/// Adds what of a generator's parameters changes.
///
/// - `renderings`: how often other generators' parameters are put into its texts.
fn inputs(
    engine: Engine,
    (kind, settings): (KindName, &Value),
    (renderings, path): (usize, String),
    found: &mut Vec<Changing>,
) {
    match kind {
        KindName::List => {
            if is_made(engine, settings, renderings) {
                add(found, Changing::Parameters { path });
            }
        }
        KindName::Matrix | KindName::Merge => {
            let children = settings.get("generators").and_then(Value::as_array);
            for (index, child) in children.into_iter().flatten().enumerate() {
                // Parameters of the first child are put into the second.
                let more = usize::from(kind == KindName::Matrix && index > 0);
                let known = KindName::ALL.into_iter();
                let known = known.filter_map(|kind| Some((kind, child.get(kind.as_str())?)));
                for (kind, settings) in known.filter(|(_, settings)| !settings.is_null()) {
                    let path = format!("{path}.generators[{index}].{}", kind.as_str());
                    let renderings = renderings.saturating_add(more);
                    inputs(engine, (kind, settings), (renderings, path), found);
                }
            }
        }
        KindName::Clusters
        | KindName::Git
        | KindName::ScmProvider
        | KindName::PullRequest
        | KindName::ClusterDecisionResource
        | KindName::Plugin => add(found, Changing::Generator { path, kind }),
    }
}

/// Whether a function could give other elements each time.
fn is_made(engine: Engine, settings: &Value, renderings: usize) -> bool {
    if engine == Engine::Fast || renderings == 0 {
        return false;
    }
    let mut texts = Vec::new();
    collect(settings, &mut texts);
    match renderings {
        1 => texts.iter().any(|text| called(text, &UNSTEADY).is_some()),
        // SECURITY: the second rendering runs what the first one wrote, which may be any
        // text at all.
        _ => texts.iter().any(|text| text.contains("{{")),
    }
}

fn collect<'a>(value: &'a Value, texts: &mut Vec<&'a str>) {
    match value {
        Value::String(text) => texts.push(text),
        Value::Array(items) => items.iter().for_each(|item| collect(item, texts)),
        Value::Object(fields) => {
            for (key, value) in fields {
                texts.push(key);
                collect(value, texts);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The first of these functions that a text calls. What cannot be parsed is not
/// rendered either.
fn called(text: &str, names: &[&'static str]) -> Option<&'static str> {
    // Most texts are not parsed for this.
    if !text.contains("{{") || !names.iter().any(|name| text.contains(name)) {
        return None;
    }
    // Which has the bounds the parser lacks.
    Go::new(text, MissingKey::Default, Role::Alone).ok()?;
    let (body, defines) = Parser::new(text, "{{", "}}").and_then(Parser::parse).ok()?;
    let mut lists = std::iter::once(&body).chain(defines.iter().map(|define| &define.body));
    lists.find_map(|list| in_list(list, names))
}

fn in_list(list: &ListNode, names: &[&'static str]) -> Option<&'static str> {
    list.nodes.iter().find_map(|node| in_node(node, names))
}

fn in_node(node: &Node, names: &[&'static str]) -> Option<&'static str> {
    match node {
        Node::List(nodes) => in_list(nodes, names),
        Node::Action(action) => in_pipe(&action.pipe, names),
        Node::If(branch) | Node::Range(branch) | Node::With(branch) => in_branch(branch, names),
        Node::Template(call) => call.pipe.as_ref().and_then(|pipe| in_pipe(pipe, names)),
        Node::Define(define) => in_list(&define.body, names),
        Node::Text(_) | Node::Break(_) | Node::Continue(_) => None,
    }
}

fn in_branch(branch: &BranchNode, names: &[&'static str]) -> Option<&'static str> {
    let body = || in_list(&branch.body, names);
    let otherwise = || branch.else_body.as_ref().and_then(|list| in_list(list, names));
    in_pipe(&branch.pipe, names).or_else(body).or_else(otherwise)
}

fn in_pipe(pipe: &PipeNode, names: &[&'static str]) -> Option<&'static str> {
    let mut arguments = pipe.commands.iter().flat_map(|command| &command.args);
    arguments.find_map(|argument| in_expression(argument, names))
}

fn in_expression(expression: &Expr, names: &[&'static str]) -> Option<&'static str> {
    match expression {
        Expr::Identifier(_, found) => names.iter().copied().find(|name| *name == found.as_str()),
        Expr::Pipe(_, inner) => in_pipe(inner, names),
        Expr::Chain(_, inner, _) => in_expression(inner, names),
        Expr::Dot(_)
        | Expr::Field(_, _)
        | Expr::Variable(_, _, _)
        | Expr::String(_, _)
        | Expr::Number(_, _)
        | Expr::Bool(_, _)
        | Expr::Nil(_) => None,
    }
}

#[cfg(test)]
mod tests;
