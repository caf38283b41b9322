//! The git generator: one set of parameters for each matching directory, or for each object in
//! each matching file.
//!
//! Security: a repository is opened only after the `InputAuthorizer` has allowed it.

use serde_json::{Map, Value, json};

use super::generator_run::{GeneratorRun, OpenTree};
use super::type_ambiguity::{self, TypeAmbiguity};
use super::values::CompiledValues;
use super::{Error, flatten, invalid};
use crate::decode::settings::{GitSettings, PathInclusion, PathItem};
use crate::inputs::InputError;
use crate::{Params, RepositoryFile, TemplateEngine, heap_size};

mod directory;
mod pathspec;

use directory::DirectoryPattern;
use pathspec::Pathspec;

/// Maximum length of a pattern, in bytes.
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
        input: &|error| match run.budget.charge_bytes(0) {
            // Paths are charged too, and a reader has no error of its own for that limit.
            Err(exceeded) => Error::Exceeded(exceeded),
            Ok(()) => Error::Input {
                path: path.to_owned(),
                error,
            },
        },
    };
    let opened = run.tree(settings.url, settings.revision).map_err(generator.input)?;
    match opened {
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
    input: &'g dyn Fn(InputError) -> Error,
}

impl GitGeneratorRun<'_, '_> {
    fn directories(&self, opened: &OpenTree, items: &[PathItem<'_>]) -> Result<Vec<Params>, Error> {
        let patterns = self.compiled("directories", items, DirectoryPattern::new)?;
        let budget = self.run.budget;
        let known = opened.directories(budget).map_err(self.input)?;
        for submodule in opened.tree.submodules(budget).map_err(self.input)? {
            budget.check_deadline()?;
            let mut wanted = patterns
                .iter()
                .filter(|(_, inclusion)| *inclusion == PathInclusion::Include);
            if wanted.any(|(pattern, _)| pattern.reaches_below(&submodule)) {
                return Err((self.input)(InputError(format!(
                    "`{submodule}` is a submodule, which the gateway does not read, and Argo CD takes directories \
                     out of it: use patterns that do not reach into it"
                ))));
            }
        }
        let mut chosen = Vec::new();
        for directory in known.iter() {
            budget.check_deadline()?;
            // There can be many long patterns. Once time is up nothing matches here, and the
            // checks above or below return the error.
            let matches = |pattern: &DirectoryPattern| budget.check_deadline().is_ok() && pattern.matches(directory);
            if is_taken(&patterns, matches) {
                chosen.push(directory.as_str());
            }
        }
        budget.check_deadline()?;
        // The order in which a walk through the tree finds them.
        chosen.sort_by(|one, other| one.split('/').cmp(other.split('/')));
        let mut made = Vec::new();
        for directory in chosen {
            let mut params = Params::new();
            self.add_path(&mut params, directory, None);
            self.finish((params, 0), &mut made)?;
        }
        Ok(made)
    }

    fn files(&self, opened: &OpenTree, settings: &GitSettings<'_>) -> Result<Vec<Params>, Error> {
        let patterns = self.compiled("files", &settings.files, Pathspec::new)?;
        let budget = self.run.budget;
        let matches = |path: &str| {
            // There can be many long patterns. Once time is up nothing matches here, and the check
            // below returns the error.
            let matches = |pattern: &Pathspec| budget.check_deadline().is_ok() && pattern.matches(path);
            is_taken(&patterns, matches)
        };
        let files = opened.tree.files(&matches, budget).map_err(self.input)?;
        budget.check_deadline()?;
        let mut made = Vec::new();
        for file in files {
            let wrong = |what: &str| invalid(self.path, format!("file `{}` of `{}` {what}", file.path, settings.url));
            for object in self.objects(&file, wrong)? {
                // The parsed values were charged while parsing; a flattened copy was not.
                let (mut params, counted) = match self.run.engine {
                    TemplateEngine::GoTemplate { .. } => {
                        type_ambiguity::check_reserved_keys(&object).map_err(|what| wrong(&what))?;
                        if type_ambiguity::has_ambiguous_values(&object, !self.values.is_empty()) {
                            self.run.record_type_ambiguity(TypeAmbiguity::Maps, self.path);
                        }
                        let counted = heap_size::of_members(&object);
                        (object, counted)
                    }
                    TemplateEngine::FastTemplate => (flatten::flat(self.run, &object)?, 0),
                };
                let (directory, name) = file.path.rsplit_once('/').unwrap_or((".", &file.path));
                self.add_path(&mut params, directory, Some(name));
                self.finish((params, counted), &mut made)?;
            }
        }
        Ok(made)
    }

    fn compiled<P>(
        &self,
        key: &str,
        items: &[PathItem<'_>],
        compile: impl Fn(&str) -> Result<P, String>,
    ) -> Result<Vec<(P, PathInclusion)>, Error> {
        let items = items.iter().enumerate().map(|(index, item)| {
            let compiled = if item.path.len() > MAX_PATTERN_BYTES {
                let observed = item.path.len();
                Err(format!("has {observed} bytes, at most {MAX_PATTERN_BYTES} are allowed"))
            } else {
                compile(item.path)
            };
            let path = || format!("{}.{key}[{index}].path", self.path);
            Ok((compiled.map_err(|what| invalid(&path(), what))?, item.inclusion))
        });
        items.collect()
    }

    /// The objects in a file: a single one, or a list. An empty file counts as one empty object.
    fn objects(&self, file: &RepositoryFile, wrong: impl Fn(&str) -> Error) -> Result<Vec<Map<String, Value>>, Error> {
        let text = std::str::from_utf8(&file.content).map_err(|_| wrong("is not UTF-8 text"))?;
        let other = || wrong("is neither a mapping nor a list of mappings");
        match self.run.yaml(text, &wrong)? {
            Value::Null => Ok(vec![Map::new()]),
            Value::Object(object) => Ok(vec![object]),
            Value::Array(items) => {
                let items = items.into_iter().map(|item| match item {
                    Value::Null => Ok(Map::new()),
                    Value::Object(object) => Ok(object),
                    Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Err(other()),
                });
                items.collect()
            }
            Value::Bool(_) | Value::Number(_) | Value::String(_) => Err(other()),
        }
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
                let segments: Vec<&str> = segments.collect();
                let mut members = Map::new();
                members.insert("path".to_owned(), Value::String(directory.to_owned()));
                members.insert("segments".to_owned(), json!(segments));
                members.extend(
                    parts
                        .into_iter()
                        .map(|(key, value)| (key.to_owned(), Value::String(value))),
                );
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
                let mut put = |key: String, value: &str| params.insert(key, Value::String(value.to_owned()));
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

    /// - `counted`: bytes of the parameters that were already charged.
    fn finish(&self, (mut params, counted): (Params, u64), made: &mut Vec<Params>) -> Result<(), Error> {
        self.values.append(self.run, &mut params)?;
        self.run
            .charge(heap_size::of_members(&params).saturating_sub(counted))?;
        made.push(params);
        Ok(())
    }
}

/// Whether a pattern includes the path and none excludes it.
fn is_taken<P>(patterns: &[(P, PathInclusion)], matches: impl Fn(&P) -> bool) -> bool {
    let any = |wanted: PathInclusion| {
        patterns
            .iter()
            .any(|(pattern, inclusion)| *inclusion == wanted && matches(pattern))
    };
    any(PathInclusion::Include) && !any(PathInclusion::Exclude)
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
