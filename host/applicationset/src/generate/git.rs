//! The git generator: one set of parameters for each matching directory, or for each object in
//! each matching file.
//!
//! Security: a repository is opened only after the `InputAuthorizer` has allowed it.

use serde_json::{Value, json};

use super::generator_run::{GeneratorRun, OpenTree};
use super::type_ambiguity::{self, TypeAmbiguity};
use super::values::CompiledValues;
use super::{Error, flatten, invalid, list};
use crate::decode::settings::{GitSettings, PathItem};
use crate::inputs::InputError;
use crate::{GenerationBudget, Params, RepositoryFile, TemplateEngine, heap_size};
use tollgate_core::path_pattern::PathPattern;

mod pathspec;

use pathspec::Pathspec;

const MAX_PATTERN_BYTES: usize = 4096;
/// Maximum length of a Kubernetes name, in bytes.
const MAX_NAME_BYTES: usize = 253;

/// Runs a git generator. If it has both directories and files, the directories are used.
pub(super) fn parameters(run: &GeneratorRun<'_>, settings: &Value, path: &str) -> Result<Vec<Params>, Error> {
    let settings = GitSettings::read(settings, path)?;
    if settings.directories.is_empty() && settings.files.is_empty() {
        return Err(invalid(path, "has neither `directories` nor `files`"));
    }
    let generator = GitGeneratorRun {
        run,
        path,
        prefix: settings.prefix,
        values: CompiledValues::new(run, settings.values.clone(), path)?,
    };
    let opened = run.tree(settings.url, settings.revision);
    match opened.map_err(|error| generator.input(error))? {
        None => Ok(Vec::new()),
        Some(opened) if settings.directories.is_empty() => generator.files(&opened, &settings),
        Some(opened) => generator.directories(&opened, &settings.directories),
    }
}

struct GitGeneratorRun<'g, 'r> {
    run: &'g GeneratorRun<'r>,
    path: &'g str,
    prefix: &'g str,
    values: CompiledValues<'g>,
}

struct Patterns<P> {
    included: Vec<P>,
    excluded: Vec<P>,
}

impl<P> Patterns<P> {
    /// Whether a pattern includes a path and none excludes it. There can be many long patterns;
    /// once time is up nothing matches, and the caller's next check returns the error.
    fn take(&self, budget: &GenerationBudget, matches: impl Fn(&P) -> bool) -> bool {
        let matches = |pattern: &P| budget.check_deadline().is_ok() && matches(pattern);
        self.included.iter().any(matches) && !self.excluded.iter().any(matches)
    }
}

impl GitGeneratorRun<'_, '_> {
    fn input(&self, error: InputError) -> Error {
        // Charges nothing: it finds out whether the limit is the cause.
        match self.run.budget.charge_bytes(0) {
            // Paths are charged too, and a reader has no separate error for that limit.
            Err(exceeded) => Error::Exceeded(exceeded),
            Ok(()) => Error::Input {
                path: self.path.to_owned(),
                error,
            },
        }
    }

    fn directories(&self, opened: &OpenTree, items: &[PathItem<'_>]) -> Result<Vec<Params>, Error> {
        let compile =
            |text: &str| PathPattern::compile(text).ok_or_else(|| format!("`{text}` has a syntax error in pattern"));
        let patterns = self.compiled("directories", items, compile)?;
        let budget = self.run.budget;
        let input = |error| self.input(error);
        let known = opened.directories(budget).map_err(input)?;
        // Argo CD checks submodules out, so a pattern that reaches into one gives it directories that are unknown here.
        for submodule in opened.tree.submodules(budget).map_err(input)? {
            budget.check_deadline()?;
            if patterns
                .included
                .iter()
                .any(|pattern| pattern.reaches_below(&submodule))
            {
                return Err(input(InputError(format!(
                    "`{submodule}` is a submodule, which the gateway does not read, and Argo CD takes directories \
                     out of it: use patterns that do not reach into it"
                ))));
            }
        }
        let mut chosen = Vec::new();
        for directory in known {
            budget.check_deadline()?;
            if patterns.take(budget, |pattern| pattern.matches(directory)) {
                chosen.push(directory.as_str());
            }
        }
        budget.check_deadline()?;
        // The order in which a walk through the tree finds them.
        chosen.sort_by(|one, other| one.split('/').cmp(other.split('/')));
        let mut made = Vec::new();
        for directory in chosen {
            made.push(self.finished(Params::new(), 0, directory, None)?);
        }
        Ok(made)
    }

    fn files(&self, opened: &OpenTree, settings: &GitSettings<'_>) -> Result<Vec<Params>, Error> {
        let patterns = self.compiled("files", &settings.files, Pathspec::new)?;
        let budget = self.run.budget;
        let matches = |path: &str| patterns.take(budget, |pattern| pattern.matches(path));
        let files = opened.tree.files(&matches, budget).map_err(|error| self.input(error))?;
        budget.check_deadline()?;
        let mut made = Vec::new();
        for file in files {
            let wrong = |what: &str| invalid(self.path, format!("file `{}` of `{}` {what}", file.path, settings.url));
            for object in self.objects(&file, wrong)? {
                // The parsed values were charged while parsing; a flattened copy was not.
                let (params, charged) = match self.run.engine {
                    TemplateEngine::GoTemplate { .. } => {
                        type_ambiguity::check_reserved_keys(&object).map_err(|what| wrong(&what))?;
                        if type_ambiguity::has_ambiguous_values(&object, !self.values.is_empty()) {
                            self.run.record_type_ambiguity(TypeAmbiguity::Maps, self.path);
                        }
                        let charged = heap_size::of_members(&object);
                        (object, charged)
                    }
                    TemplateEngine::FastTemplate => (flatten::flat(self.run, &object)?, 0),
                };
                let (directory, name) = file.path.rsplit_once('/').unwrap_or((".", &file.path));
                made.push(self.finished(params, charged, directory, Some(name))?);
            }
        }
        Ok(made)
    }

    fn compiled<P>(
        &self,
        key: &str,
        items: &[PathItem<'_>],
        compile: impl Fn(&str) -> Result<P, String>,
    ) -> Result<Patterns<P>, Error> {
        let (mut included, mut excluded) = (Vec::new(), Vec::new());
        for (index, item) in items.iter().enumerate() {
            let compiled = match item.path.len() {
                observed if observed > MAX_PATTERN_BYTES => {
                    Err(format!("has {observed} bytes, at most {MAX_PATTERN_BYTES} are allowed"))
                }
                _ => compile(item.path),
            };
            let wrong = |what| invalid(&format!("{}.{key}[{index}].path", self.path), what);
            let patterns = if item.is_excluded { &mut excluded } else { &mut included };
            patterns.push(compiled.map_err(wrong)?);
        }
        Ok(Patterns { included, excluded })
    }

    /// The objects in a file: a single one, or a list. An empty file counts as one empty object.
    fn objects(&self, file: &RepositoryFile, wrong: impl Fn(&str) -> Error) -> Result<Vec<Params>, Error> {
        let text = std::str::from_utf8(&file.content).map_err(|_| wrong("is not UTF-8 text"))?;
        let items = match self.run.yaml(text, &wrong)? {
            Value::Array(items) => items,
            single => vec![single],
        };
        let objects = items.into_iter().map(list::mapping).collect::<Option<_>>();
        objects.ok_or_else(|| wrong("is neither a mapping nor a list of mappings"))
    }

    /// Adds `path` and the parameters derived from it, in the engine's form.
    fn add_path(&self, params: &mut Params, directory: &str, file: Option<&str>) {
        let basename = directory.rsplit('/').next().unwrap_or(directory);
        let mut parts = vec![
            ("basename", basename.to_owned()),
            ("basenameNormalized", sanitize_name(basename)),
        ];
        if let Some(name) = file {
            parts.push(("filename", name.to_owned()));
            parts.push(("filenameNormalized", sanitize_name(name)));
        }
        let segments = directory.split('/');
        match self.run.engine {
            TemplateEngine::GoTemplate { .. } => {
                self.run.record_type_ambiguity(TypeAmbiguity::Lists, self.path);
                let mut members = Params::new();
                members.insert("path".to_owned(), directory.into());
                members.insert("segments".to_owned(), segments.collect());
                members.extend(parts.into_iter().map(|(key, value)| (key.to_owned(), value.into())));
                let members = Value::Object(members);
                let (key, value) = match self.prefix {
                    "" => ("path", members),
                    prefix => (prefix, json!({ "path": members })),
                };
                params.insert(key.to_owned(), value);
            }
            TemplateEngine::FastTemplate => {
                let name = match self.prefix {
                    "" => "path".to_owned(),
                    prefix => format!("{prefix}.path"),
                };
                let mut put = |key: String, value: &str| params.insert(key, value.into());
                for (key, value) in parts {
                    put(format!("{name}.{key}"), &value);
                }
                for (index, segment) in segments.enumerate().filter(|(_, segment)| !segment.is_empty()) {
                    put(format!("{name}[{index}]"), segment);
                }
                put(name, directory);
            }
        }
    }

    /// The parameters with those of the path and the generator's `values`, charged to the budget.
    ///
    /// - `charged`: bytes of them that already were.
    fn finished(&self, mut params: Params, charged: u64, directory: &str, file: Option<&str>) -> Result<Params, Error> {
        self.add_path(&mut params, directory, file);
        self.values.append(self.run, &mut params)?;
        let bytes = heap_size::of_members(&params);
        self.run.charge(bytes.saturating_sub(charged))?;
        Ok(params)
    }
}

/// Turns a string into a valid name. Source: Argo CD, `SanitizeName`.
pub(super) fn sanitize_name(text: &str) -> String {
    let fit = |symbol: char| match symbol {
        'a'..='z' | '0'..='9' | '-' | '.' => symbol,
        _ => '-',
    };
    let name: String = text.to_lowercase().chars().map(fit).take(MAX_NAME_BYTES).collect();
    name.trim_matches(['-', '.']).to_owned()
}
