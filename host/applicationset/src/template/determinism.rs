//! Whether the projects and names of what a set generates are deterministic, and if not, what
//! makes them change from one rendering to the next.
//!
//! A set is authorized once and then rendered again and again by Argo CD's controller, without
//! another check. A literal project is stable, and so is one from the elements of a list
//! generator. `templatePatch` cannot change it, but can start an operation. Names may depend on what
//! generators read.
//!
//! Security: every project that depends on a clock, on chance or on what somebody else writes is
//! reported, and every name that depends on a clock or on chance. So is every operation.

use serde_json::Value;
use strum::VariantArray;

use super::AuthorizationImpact;
use super::functions::listed;
use super::go_template::GoTemplate;
use crate::{GeneratorKind, MissingKey, Spec, TemplateEngine};

/// Functions whose result changes each time: with the clock, by chance, or, in Argo CD, with the
/// order of a Go map. Date functions use the clock if they are called without a date.
const NONDETERMINISTIC_FUNCTIONS: &str = "\
    ago bcrypt buildCustomCert date dateInZone date_in_zone durationRound encryptAES genCA genCAWithKey \
    genPrivateKey genSelfSignedCert genSelfSignedCertWithKey genSignedCert genSignedCertWithKey htmlDate \
    htmlDateInZone htpasswd keys now randAlpha randAlphaNum randAscii randBytes randInt randNumeric \
    shuffle uuidv4 values";

/// Functions whose result changes sometimes: Argo CD keeps the length of a slug in a global that
/// all sets rendered at the same time share.
const SOMETIMES_NONDETERMINISTIC: &str = "slugify";

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
    /// Parameters that a template within a generator makes. The text is the generator's path, from
    /// the root of the object.
    Parameters(String),
    /// `templatePatch` has the key `operation`, even if it renders to nothing now.
    Operation,
    /// Parameters of a generator that queries other systems are in `templatePatch`, where they could
    /// add any key, `operation` too. The text is the generator's path, from the root of the object.
    Patch(String),
}

/// Finds everything that makes the projects of a set change, and everything that makes its names
/// change with a clock or by chance.
pub fn nondeterminism(spec: &Spec) -> Vec<Nondeterminism> {
    let mut found = Vec::new();
    let patch = spec.template_patch.as_deref().unwrap_or_default();
    if names_operation(patch) {
        found.push(Nondeterminism::Operation);
    }
    for (index, generator) in spec.generators.iter().enumerate() {
        for (kind, settings) in generator.kinds() {
            let own = settings.get("template");
            functions(spec, own, &mut found);
            if patch.contains("{{") {
                let path = format!("spec.generators[{index}].{}", kind.as_ref());
                let mut read = Vec::new();
                inputs(spec.engine, kind, settings, 0, path, &mut read);
                for one in read {
                    if let Nondeterminism::Generator { path, .. } = one {
                        add(&mut found, Nondeterminism::Patch(path));
                    }
                }
            }
            let is_project = is_templated(own, &spec.template);
            if !is_project && !is_name_templated(spec, own) {
                continue;
            }
            let path = format!("spec.generators[{index}].{}", kind.as_ref());
            let mut read = Vec::new();
            inputs(spec.engine, kind, settings, 0, path, &mut read);
            // A name may depend on what others write, but not on a clock.
            read.retain(|one| is_project || matches!(one, Nondeterminism::Parameters(_)));
            for one in read {
                add(&mut found, one);
            }
        }
    }
    found
}

/// Whether a patch has the key `operation`, regardless of what its templates render to. If it has
/// templates, the key may be anywhere, because they decide what is at the top. Argo CD ignores the
/// case of keys.
fn names_operation(patch: &str) -> bool {
    let mut plain = String::with_capacity(patch.len());
    let mut rest = patch;
    while let Some((before, action)) = rest.split_once("{{") {
        plain.push_str(before);
        rest = action.split_once("}}").map_or("", |(_, after)| after);
    }
    plain.push_str(rest);
    let plain = plain.to_ascii_lowercase();
    // In block style only a key at the start of a line is at the top. In flow style any can be.
    let is_anywhere = patch.contains("{{") || plain.trim_start().starts_with('{');
    let mut names = plain.match_indices("operation");
    names.any(|(start, name)| {
        let (before, after) = (plain.get(..start), plain.get(start.saturating_add(name.len())..));
        let [before, after] = [before, after].map(Option::unwrap_or_default);
        let is_key = after.trim_start_matches(['"', '\'', ' ', '\t']).starts_with(':');
        let before = before.trim_end_matches(['"', '\'']);
        is_key && (is_anywhere || before.is_empty() || before.ends_with('\n'))
    })
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

fn text<'a>(own: Option<&'a Value>, base: &'a Value, pointer: &str) -> &'a str {
    let mut texts = templates(own, base).filter_map(|template| template.pointer(pointer)?.as_str());
    texts.find(|text| !text.is_empty()).unwrap_or_default()
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
    let name = called(project, NONDETERMINISTIC_FUNCTIONS);
    if let Some(name) = name.or_else(|| called(project, SOMETIMES_NONDETERMINISTIC)) {
        add(found, Nondeterminism::Function(name));
    }
    // SECURITY: a name that is `a` today may tomorrow be that of somebody else's Application,
    // which Argo CD's controller would then take over.
    let name = text(own, &spec.template, "/metadata/name");
    let patch = spec.template_patch.as_deref().unwrap_or_default();
    for (text, path) in [(name, "spec.template.metadata.name"), (patch, "spec.templatePatch")] {
        if let Some(function) = called(text, NONDETERMINISTIC_FUNCTIONS) {
            add(found, Nondeterminism::Name { function, path });
        }
    }
}

fn is_name_templated(spec: &Spec, own: Option<&Value>) -> bool {
    let patch = spec.template_patch.as_deref().unwrap_or_default();
    text(own, &spec.template, "/metadata/name").contains("{{") || patch.contains("{{")
}

/// Adds the parameters of a generator that change.
///
/// - `renderings`: how often the generator is rendered with other generators' parameters.
fn inputs(
    engine: TemplateEngine,
    kind: GeneratorKind,
    settings: &Value,
    renderings: usize,
    path: String,
    found: &mut Vec<Nondeterminism>,
) {
    match kind {
        GeneratorKind::List if is_nondeterministic(engine, settings, renderings) => {
            add(found, Nondeterminism::Parameters(path));
        }
        GeneratorKind::List => {}
        GeneratorKind::Matrix | GeneratorKind::Merge => {
            let children = settings.get("generators").and_then(Value::as_array);
            for (index, child) in children.into_iter().flatten().enumerate() {
                // The second child is rendered with the parameters of the first.
                let more = usize::from(kind == GeneratorKind::Matrix && index > 0);
                let known = GeneratorKind::VARIANTS.iter().copied();
                let known = known.filter_map(|kind| Some((kind, child.get(kind.as_ref())?)));
                for (kind, settings) in known.filter(|(_, settings)| !settings.is_null()) {
                    let path = format!("{path}.generators[{index}].{}", kind.as_ref());
                    let renderings = renderings.saturating_add(more);
                    inputs(engine, kind, settings, renderings, path, found);
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
    let could_change: fn(&str) -> bool = match renderings {
        0 => return false,
        1 => |text| called(text, NONDETERMINISTIC_FUNCTIONS).is_some(),
        // SECURITY: the second rendering executes what the first one wrote, which may be any text.
        _ => |text| text.contains("{{"),
    };
    engine != TemplateEngine::FastTemplate && any_text(settings, could_change)
}

/// Whether this holds for any string or key.
fn any_text(value: &Value, holds: fn(&str) -> bool) -> bool {
    match value {
        Value::String(text) => holds(text),
        Value::Array(items) => items.iter().any(|item| any_text(item, holds)),
        Value::Object(fields) => fields.iter().any(|(key, value)| holds(key) || any_text(value, holds)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// The first call of one of these functions. A template that cannot be parsed is not rendered
/// either.
fn called(text: &str, names: &'static str) -> Option<&'static str> {
    // Avoids parsing most templates.
    if !text.contains("{{") || !names.split(' ').any(|name| text.contains(name)) {
        return None;
    }
    let template = GoTemplate::new(text, MissingKey::Default, AuthorizationImpact::None).ok()?;
    template.functions().into_iter().find_map(|name| listed(names, name))
}

#[cfg(test)]
mod tests;
