//! Whether the projects and names of what a set generates are deterministic, and if not, what
//! makes them change from one rendering to the next.
//!
//! A set is authorized once and then rendered again and again by Argo CD's controller, without
//! another check. A literal project is stable, and so is one from the elements of a list
//! generator. `templatePatch` cannot change it. Names may depend on what generators read.
//!
//! Security: every project that depends on a clock, on chance or on what somebody else writes is
//! reported, and every name that depends on a clock or on chance.

use gotmpl::parse::{BranchNode, Expr, ListNode, Node, Parser, PipeNode};
use serde_json::Value;

use super::AuthorizationImpact;
use super::go_template::GoTemplate;
use crate::{GeneratorKind, MissingKey, Spec, TemplateEngine};

/// Functions whose result changes each time: with the clock, by chance, or, in Argo CD, with the
/// order of a Go map. Date functions use the clock if they are called without a date.
const NONDETERMINISTIC_FUNCTIONS: [&str; 29] = [
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

/// Functions whose result changes sometimes: Argo CD keeps the length of a slug in a global that
/// all sets rendered at the same time share.
const SOMETIMES_NONDETERMINISTIC: [&str; 1] = ["slugify"];

/// What makes a project or a name change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Nondeterminism {
    /// A function in the template of the project.
    Function(&'static str),
    /// A function in the template of the name.
    Name {
        /// The function.
        function: &'static str,
        /// The template's path, from the root of the object.
        path: &'static str,
    },
    /// Parameters of a generator that queries other systems.
    Generator {
        /// The generator's path, from the root of the object.
        path: String,
        /// Its kind.
        kind: GeneratorKind,
    },
    /// Parameters that a template within a generator makes.
    Parameters {
        /// The generator's path, from the root of the object.
        path: String,
    },
}

/// Finds everything that makes the projects of a set change, and everything that makes its names
/// change with a clock or by chance.
pub fn nondeterminism(spec: &Spec) -> Vec<Nondeterminism> {
    let mut found = Vec::new();
    for (index, generator) in spec.generators.iter().enumerate() {
        for (kind, settings) in generator.kinds() {
            let own = settings.get("template");
            functions(spec, own, &mut found);
            let is_project = is_templated(own, &spec.template);
            if !is_project && !is_name_templated(spec, own) {
                continue;
            }
            let path = format!("spec.generators[{index}].{}", kind.as_str());
            let mut read = Vec::new();
            inputs(spec.engine, (kind, settings), (0, path), &mut read);
            // A name may depend on what others write, but not on a clock.
            read.retain(|one| is_project || matches!(one, Nondeterminism::Parameters { .. }));
            for one in read {
                add(&mut found, one);
            }
        }
    }
    found
}

fn add(found: &mut Vec<Nondeterminism>, one: Nondeterminism) {
    if !found.contains(&one) {
        found.push(one);
    }
}

/// The template of a generator, then that of the set; the former takes precedence.
fn templates<'a>(own: Option<&'a Value>, base: &'a Value) -> impl Iterator<Item = &'a Value> {
    own.into_iter().chain(std::iter::once(base))
}

/// The string at that pointer.
fn text<'a>(own: Option<&'a Value>, base: &'a Value, pointer: &str) -> &'a str {
    let texts = templates(own, base).filter_map(|template| template.pointer(pointer)?.as_str());
    let mut texts = texts.filter(|text| !text.is_empty());
    texts.next().unwrap_or_default()
}

/// Whether the project depends on parameters; keys are templates too.
fn is_templated(own: Option<&Value>, base: &Value) -> bool {
    let has_keys = |object: Option<&Value>| {
        let mut fields = object.and_then(Value::as_object).into_iter().flatten();
        fields.any(|(key, _)| key.contains("{{"))
    };
    text(own, base, "/spec/project").contains("{{")
        || templates(own, base).any(|template| has_keys(Some(template)) || has_keys(template.get("spec")))
}

/// The functions that make the project or the name change each time.
fn functions(spec: &Spec, own: Option<&Value>, found: &mut Vec<Nondeterminism>) {
    if spec.engine == TemplateEngine::FastTemplate {
        return;
    }
    let project = text(own, &spec.template, "/spec/project");
    if let Some(name) =
        called(project, &NONDETERMINISTIC_FUNCTIONS).or_else(|| called(project, &SOMETIMES_NONDETERMINISTIC))
    {
        add(found, Nondeterminism::Function(name));
    }
    // SECURITY: a name that is `a` today may tomorrow be that of somebody else's Application,
    // which Argo CD's controller would then take over.
    let name = text(own, &spec.template, "/metadata/name");
    if let Some(function) = called(name, &NONDETERMINISTIC_FUNCTIONS) {
        let path = "spec.template.metadata.name";
        add(found, Nondeterminism::Name { function, path });
    }
    if let Some(function) = spec
        .template_patch
        .as_deref()
        .and_then(|text| called(text, &NONDETERMINISTIC_FUNCTIONS))
    {
        let path = "spec.templatePatch";
        add(found, Nondeterminism::Name { function, path });
    }
}

/// Whether the name may depend on parameters.
fn is_name_templated(spec: &Spec, own: Option<&Value>) -> bool {
    let patch = spec.template_patch.as_deref().unwrap_or_default();
    text(own, &spec.template, "/metadata/name").contains("{{") || patch.contains("{{")
}

/// Adds the parameters of a generator that change.
///
/// - `renderings`: how often the generator is rendered with other generators' parameters.
fn inputs(
    engine: TemplateEngine,
    (kind, settings): (GeneratorKind, &Value),
    (renderings, path): (usize, String),
    found: &mut Vec<Nondeterminism>,
) {
    match kind {
        GeneratorKind::List => {
            if is_nondeterministic(engine, settings, renderings) {
                add(found, Nondeterminism::Parameters { path });
            }
        }
        GeneratorKind::Matrix | GeneratorKind::Merge => {
            let children = settings.get("generators").and_then(Value::as_array);
            for (index, child) in children.into_iter().flatten().enumerate() {
                // The second child is rendered with the parameters of the first.
                let more = usize::from(kind == GeneratorKind::Matrix && index > 0);
                let known = GeneratorKind::ALL.into_iter();
                let known = known.filter_map(|kind| Some((kind, child.get(kind.as_str())?)));
                for (kind, settings) in known.filter(|(_, settings)| !settings.is_null()) {
                    let path = format!("{path}.generators[{index}].{}", kind.as_str());
                    let renderings = renderings.saturating_add(more);
                    inputs(engine, (kind, settings), (renderings, path), found);
                }
            }
        }
        GeneratorKind::Clusters
        | GeneratorKind::Git
        | GeneratorKind::ScmProvider
        | GeneratorKind::PullRequest
        | GeneratorKind::ClusterDecisionResource
        | GeneratorKind::Plugin => add(found, Nondeterminism::Generator { path, kind }),
    }
}

/// Whether a function could make the elements change each time.
fn is_nondeterministic(engine: TemplateEngine, settings: &Value, renderings: usize) -> bool {
    if engine == TemplateEngine::FastTemplate || renderings == 0 {
        return false;
    }
    let mut texts = Vec::new();
    collect(settings, &mut texts);
    match renderings {
        1 => texts
            .iter()
            .any(|text| called(text, &NONDETERMINISTIC_FUNCTIONS).is_some()),
        // SECURITY: the second rendering executes what the first one wrote, which may be any text.
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

/// The first of these functions that a template calls. A template that cannot be parsed is not
/// rendered either.
fn called(text: &str, names: &[&'static str]) -> Option<&'static str> {
    // Avoids parsing most templates.
    if !text.contains("{{") || !names.iter().any(|name| text.contains(name)) {
        return None;
    }
    // `GoTemplate` enforces the limits that the parser lacks.
    GoTemplate::new(text, MissingKey::Default, AuthorizationImpact::None).ok()?;
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
