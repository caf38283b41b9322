//! Compares the documentation with the program: every setting is documented, and every command,
//! link and source file that a document names exists.

mod tics;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

use clap::CommandFactory;
use serde_json::Value;
use strum::VariantArray;
use tollgate_config::raw;
use tollgate_core::diagnostic::Diagnostic;
use tollgate_objects::decode;
use tollgate_objects::extensions;
use tollgate_proxy::metrics::LABELS;
use tollgate_rego::Front;
use xtask::figures;
use xtask::reference::{self, Sources};

/// A key that no mapping knows.
const PROBE: &str = "probeOfTheTest";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The texts between single backticks.
fn quoted(text: &str) -> BTreeSet<&str> {
    text.lines()
        .flat_map(|line| line.split('`').skip(1).step_by(2))
        .collect()
}

/// The keys that the parser knows beside the probe. `None` if it expects no mapping with fixed keys
/// there.
fn known_settings(settings: &str) -> Option<Vec<String>> {
    let loaded = raw::parse(settings, "tollgate.yaml", root());
    let about = format!("unknown field `{PROBE}`, expected one of ");
    let mut messages = loaded.diagnostics.iter().map(|found| &found.message);
    let keys = messages.find_map(|message| message.strip_prefix(&about))?;
    Some(keys.split(", ").map(str::to_owned).collect())
}

/// Settings with the probe at `path`, whose parts are keys, `[]` and `<name>`.
fn probe(path: &[String]) -> String {
    let mut text = format!("{{{PROBE}: 0}}");
    for part in path.iter().rev() {
        text = match part.as_str() {
            "[]" => format!("[{text}]"),
            "<name>" => format!("{{any-name: {text}}}"),
            key => format!("{{{key}: {text}}}"),
        };
    }
    text
}

/// Finds every key below `path` from the parser's messages about the probe.
fn settings_below(path: &[String], found: &mut Vec<String>) {
    let shapes: [&[&str]; 3] = [&[], &["[]"], &["<name>"]];
    for shape in shapes {
        let mut at = path.to_vec();
        at.extend(shape.iter().map(|part| (*part).to_owned()));
        let Some(keys) = known_settings(&probe(&at)) else {
            continue;
        };
        assert!(!keys.is_empty(), "the parser names no key at {path:?}");
        for key in keys {
            let mut below = at.clone();
            below.push(key);
            settings_below(&below, found);
        }
        return;
    }
    found.push(path.join(".").replace(".[]", "[]"));
}

#[test]
fn pictures_show_the_pages_of_today_and_are_used() {
    let root = root();
    assert_eq!(
        xtask::pictures::digest_of_pictures(root).unwrap(),
        xtask::pictures::digest_of_pages(root).unwrap(),
        "the pages have changed since the pictures of {} were taken: run `cargo xtask pictures`, and look at them",
        xtask::pictures::FOLDER
    );
    let texts = ["README.md", "docs/console.md"].map(read).concat();
    for name in xtask::pictures::names(root).unwrap() {
        assert!(texts.contains(&format!("pictures/{name}")), "no document shows {name}");
    }
}

#[test]
fn every_setting_is_documented() {
    let mut keys = Vec::new();
    settings_below(&[], &mut keys);
    // The probe finds nested keys, lists and maps.
    for sure in [
        "listen",
        "limits.requestsPerPerson",
        "authentication.jwt[].issuer.discoveryURL",
        "plugins.grants.<name>.memoryBytes",
    ] {
        assert!(keys.iter().any(|key| key == sure), "`{sure}` is not found: {keys:#?}");
    }
    let page = read("docs/reference/settings.md");
    let explained = quoted(&page);
    // Issuers have the same keys wherever they are listed.
    let explains = |key: &str| explained.contains(key.replace("kubernetes.jwt[]", "authentication.jwt[]").as_str());
    let missing: Vec<_> = keys.iter().filter(|key| !explains(key)).collect();
    assert!(missing.is_empty(), "docs/reference/settings.md lacks {missing:#?}");
    // Every documented setting exists.
    for row in page.lines() {
        let Some(key) = row.strip_prefix("- **`").and_then(|row| row.split('`').next()) else {
            continue;
        };
        let is_group = keys.iter().any(|known| {
            let below = known.strip_prefix(key);
            below.is_some_and(|below| below.starts_with("[]") || below.starts_with('.'))
        });
        // The parser's message about a variant of an enum names no keys.
        let is_of_variant = ["kubernetes.audit.export.", "kubernetes.authorizer."]
            .iter()
            .any(|variants| key.starts_with(variants));
        assert!(
            is_group || is_of_variant || keys.iter().any(|known| known == key),
            "docs/reference/settings.md documents `{key}`, which is no setting"
        );
    }
}

/// The keys that the parser of extensions knows beside the probe.
fn known_extension_keys(value: &str) -> Vec<String> {
    let object = serde_json::json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "argocd-cm", "namespace": "argocd"},
        "data": {"extension.config": value},
    });
    let loaded = decode::load_text(&object.to_string(), "argocd-cm.yaml", "argocd");
    let resources = loaded.value.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics));
    let findings = extensions::parse(&resources).diagnostics;
    let about = |finding: &&Diagnostic| finding.message.contains(&format!("unknown key `{PROBE}`"));
    let finding = findings
        .iter()
        .find(about)
        .unwrap_or_else(|| panic!("{value}: {findings:?}"));
    let keys = finding
        .hint
        .as_deref()
        .and_then(|hint| hint.strip_prefix("known keys: "))
        .unwrap();
    keys.split(", ").map(str::to_owned).collect()
}

#[test]
fn every_key_of_an_extension_is_documented() {
    let page = read("docs/extension-config.md");
    let explained = quoted(&page);
    let backend =
        |inner: &str| format!("{{extensions: [{{name: e, backend: {{services: [{{url: 'http://e'}}], {inner}}}}}]}}");
    let service =
        |inner: &str| format!("{{extensions: [{{name: e, backend: {{services: [{{url: 'http://e', {inner}}}]}}}}]}}");
    let mut places = BTreeMap::from([
        ("", format!("{{{PROBE}: 0}}")),
        ("extension", format!("{{extensions: [{{name: e, {PROBE}: 0}}]}}")),
        ("backend", backend(&format!("{PROBE}: 0"))),
        ("service", service(&format!("{PROBE}: 0"))),
        ("cluster.", service(&format!("cluster: {{{PROBE}: 0}}"))),
        ("headers[].", service(&format!("headers: [{{{PROBE}: 0}}]"))),
        (
            "limits.perPerson.",
            backend(&format!("limits: {{perPerson: {{{PROBE}: 0}}}}")),
        ),
        (
            "identity.assertion.",
            backend(&format!("identity: {{assertion: {{{PROBE}: 0}}}}")),
        ),
    ]);
    for block in ["timeouts.", "limits.", "tls.", "identity."] {
        let name = block.trim_end_matches('.');
        places.insert(block, backend(&format!("{name}: {{{PROBE}: 0}}")));
    }
    for (place, value) in places {
        let prefix = if place.ends_with('.') { place } else { "" };
        for key in known_extension_keys(&value) {
            let full = format!("{prefix}{key}");
            // A block is documented if one of its parts is.
            let is_explained = explained.contains(full.as_str())
                || explained
                    .iter()
                    .any(|text| text.starts_with(&format!("{full}.")) || text.starts_with(&format!("{full}[")))
                || (prefix == "limits.perPerson." && explained.contains("limits.perPerson.*"))
                || (place.is_empty() && page.contains("extensions:"));
            assert!(is_explained, "docs/extension-config.md lacks `{full}`");
        }
    }
}

#[test]
fn the_reference_is_what_the_program_says() {
    let sources = Sources {
        settings: raw::schema().to_value(),
        help: reference::help(Path::new(env!("CARGO_BIN_EXE_tollgate"))).unwrap(),
        facts: test_support::reference::facts(),
    };
    let pages = reference::pages(root(), &sources).unwrap();
    reference::check(root(), &pages).unwrap();
    let inputs = &pages["docs/reference/policy-inputs.md"];
    for &front in Front::VARIANTS {
        let heading = format!("\n## The input of `{}`\n", front.as_ref());
        assert!(inputs.contains(&heading), "{heading} is missing");
    }
    // A page that differs is found, with the command that renews it.
    let mut other = pages.clone();
    other.get_mut("docs/reference/metrics.md").unwrap().push_str("more\n");
    let error = reference::check(root(), &other).unwrap_err().to_string();
    assert!(
        error.contains("`cargo xtask reference`:\ndocs/reference/metrics.md:"),
        "{error}"
    );
}

#[test]
fn example_settings_are_valid() {
    for name in ["deploy/tollgate.yaml", "deploy/demo/tollgate.yaml"] {
        // The demo fills in the port when it starts.
        let text = read(name).replace("$CLUSTER_PORT", "8443");
        let loaded = raw::parse(&text, name, Path::new("/etc/tollgate"));
        assert!(loaded.diagnostics.is_empty(), "{name}: {:?}", loaded.diagnostics);
        assert!(loaded.value.is_some());
    }
    // The keys that are commented out are valid too.
    let name = "deploy/tollgate.yaml";
    let open = |line: &str| match line.strip_prefix("# ").or_else(|| line.strip_prefix("  # ")) {
        Some(rest) if is_setting(rest) => format!("{}{rest}\n", if line.starts_with("  #") { "  " } else { "" }),
        _ => format!("{line}\n"),
    };
    let text: String = read(name).lines().map(open).collect();
    let loaded = raw::parse(&text, name, Path::new("/etc/tollgate"));
    assert!(loaded.diagnostics.is_empty(), "{text}\n{:?}", loaded.diagnostics);
    let config = loaded.value.unwrap();
    assert_eq!(config.authentication.issuers.len(), 1);
    assert!(config.plugins.grants.contains_key("tenant-router"));
    assert_eq!(config.limits.requests_per_person, 100);
    // Editors check the file by the schema.
    let schema = jsonschema::validator_for(raw::schema().as_value()).unwrap();
    let mut settings: Value = serde_saphyr::from_str(&text).unwrap();
    // What is below it has an example each, and stays commented out.
    assert_eq!(settings["kubernetes"]["users"].take(), Value::Null);
    settings["kubernetes"].as_object_mut().unwrap().remove("users");
    let errors: Vec<_> = schema.iter_errors(&settings).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:?}");
    settings["limits"]["requestsPerPersn"] = 1.into();
    assert!(!schema.is_valid(&settings));
}

/// Whether a comment is a setting that is commented out, `key:` or a list item, and not a sentence.
fn is_setting(comment: &str) -> bool {
    let text = comment.trim_start().trim_start_matches("- ");
    text.split_once(':').is_some_and(|(key, rest)| {
        let is_key = key
            .chars()
            .all(|symbol| symbol.is_ascii_alphanumeric() || symbol == '-');
        is_key && (rest.is_empty() || rest.starts_with(' '))
    })
}

/// Every Markdown file of the checkout.
fn documents() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    let mut folders = vec![root().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap_or_default();
            if path.is_dir() {
                if !name.starts_with('.') && !["target", "node_modules"].contains(&name) {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|ending| ending == "md") {
                found.push(path);
            }
        }
    }
    assert!(found.len() >= 8, "{found:?}");
    found
}

/// The arguments of the command lines in `text` that call the gateway's binary.
fn commands(text: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut fenced = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            continue;
        }
        let code: Vec<&str> = match fenced || line.starts_with("    ") {
            true => vec![line],
            false => line.split('`').skip(1).step_by(2).collect(),
        };
        for code in code {
            let code = code.trim();
            for caller in ["tollgate ", "cargo run -q -- "] {
                if let Some(rest) = code.strip_prefix(caller) {
                    let words = rest.split(" # ").next().unwrap_or(rest).split_whitespace();
                    found.push(words.map(str::to_owned).collect());
                }
            }
        }
    }
    found
}

/// The first unknown flag or command of a command line.
fn mistake(words: &[String]) -> Option<String> {
    let cli = tollgate_cli::Cli::command();
    let mut command = cli.clone();
    for word in words {
        if let Some(flag) = word.strip_prefix("--") {
            let flag = flag.split('=').next().unwrap_or(flag).trim_end_matches([',', ')']);
            let is_known = ["help", "version"].contains(&flag)
                || command
                    .get_arguments()
                    .any(|argument| argument.get_long() == Some(flag))
                || cli.get_subcommands().any(|top| {
                    // A global option of a group of commands.
                    top.get_subcommands()
                        .any(|below| below.get_name() == command.get_name())
                        && top
                            .get_arguments()
                            .any(|global| global.is_global_set() && global.get_long() == Some(flag))
                });
            if !is_known {
                return Some(format!("no flag `--{flag}`"));
            }
        } else if command.has_subcommands() {
            // `a | b` and `a|b` name alternatives.
            for one in word.split('|').filter(|one| !one.is_empty()) {
                let Some(next) = command.find_subcommand(one) else {
                    let is_placeholder =
                        one.starts_with(['…', '<', '[']) || one.chars().all(|symbol| symbol.is_ascii_uppercase());
                    return (!is_placeholder).then(|| format!("no command `{one}`"));
                };
                if word.contains('|') {
                    continue;
                }
                command = next.clone();
            }
            if word.contains('|') {
                return None;
            }
        }
    }
    None
}

#[test]
fn every_documented_command_exists() {
    let mut seen = 0;
    for document in documents() {
        for words in commands(&std::fs::read_to_string(&document).unwrap()) {
            seen += 1;
            if let Some(mistake) = mistake(&words) {
                panic!("{}: `tollgate {}`: {mistake}", document.display(), words.join(" "));
            }
        }
    }
    assert!(seen > 15, "only {seen} commands found");
    // The check finds mistakes.
    let line = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert!(mistake(&line("polcy test")).is_some());
    assert!(mistake(&line("rbac can't")).is_some());
    assert!(mistake(&line("check --confg x")).is_some());
    assert!(mistake(&line("plugin test a --plugins-dir b --request c")).is_none());
}

#[test]
fn every_relative_link_has_a_target() {
    let mut seen = 0;
    for document in documents() {
        let text = std::fs::read_to_string(&document).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            seen += 1;
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() {
                document.clone()
            } else {
                document.parent().unwrap().join(file)
            };
            assert!(
                target.exists(),
                "{}: the target of `{link}` does not exist",
                document.display()
            );
            if !anchor.is_empty() {
                let there = std::fs::read_to_string(&target).unwrap();
                let is_heading = there
                    .lines()
                    .filter(|line| line.starts_with('#'))
                    .any(|line| slug(line) == anchor);
                assert!(is_heading, "{}: there is no heading for `{link}`", document.display());
            }
        }
    }
    assert!(seen > 5, "only {seen} links found");
}

/// The anchor that GitHub gives a heading.
fn slug(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    text.chars()
        .filter(|symbol| symbol.is_alphanumeric() || " -_".contains(*symbol))
        .map(|symbol| if symbol == ' ' { '-' } else { symbol })
        .collect()
}

/// A row of the table of crates in ARCHITECTURE.md.
#[derive(Debug)]
struct Row {
    name: String,
    /// Packages that it must not link, through however many others.
    unlinked: BTreeSet<String>,
    /// Packages that it must not use itself.
    unused: BTreeSet<String>,
}

/// The rows of the section `Crates`, lowest crate first.
fn crates_of_architecture() -> Vec<Row> {
    let text = read("ARCHITECTURE.md");
    let section = text
        .split("\n## ")
        .find(|section| section.starts_with("Crates\n"))
        .unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    rows.map(|line| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let names = |cell: &str| quoted(cell).into_iter().map(str::to_owned).collect();
        Row {
            name: cells[1].split_whitespace().next().unwrap().trim_matches('`').to_owned(),
            unlinked: names(cells[3]),
            unused: names(cells[4]),
        }
    })
    .collect()
}

/// The packages of the build, and on which ones each depends outside of tests.
type Graph = BTreeMap<String, BTreeSet<String>>;

/// What Cargo resolves for Linux, and the names of the gateway's own packages: those below `host`, and the
/// binary's.
fn packages() -> (Graph, BTreeSet<String>) {
    let output = std::process::Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--offline", "--locked"])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let packages = metadata["packages"].as_array().unwrap();
    let names: BTreeMap<String, String> = packages
        .iter()
        .map(|package| (text(&package["id"]), text(&package["name"])))
        .collect();
    let own = packages.iter().filter(|package| {
        let manifest = Path::new(package["manifest_path"].as_str().unwrap());
        manifest.starts_with(root().join("host")) || manifest == root().join("Cargo.toml")
    });
    let own = own.map(|package| text(&package["name"])).collect();
    let mut graph = Graph::new();
    for node in metadata["resolve"]["nodes"].as_array().unwrap() {
        let used = node["deps"].as_array().unwrap().iter().filter(|dependency| {
            let kinds = dependency["dep_kinds"].as_array().unwrap();
            kinds.iter().any(|kind| kind["kind"].is_null())
        });
        // Two versions of a package are one here: neither may be linked.
        let used = used.map(|dependency| names[dependency["pkg"].as_str().unwrap()].clone());
        graph
            .entry(names[node["id"].as_str().unwrap()].clone())
            .or_default()
            .extend(used);
    }
    (graph, own)
}

/// The shortest way from a package to another.
fn way(graph: &Graph, from: &str, to: &str) -> Option<Vec<String>> {
    let mut before: BTreeMap<&str, &str> = BTreeMap::new();
    let mut waiting = VecDeque::from([from]);
    while let Some(at) = waiting.pop_front() {
        if at == to {
            let mut way = vec![to.to_owned()];
            while let Some(step) = before.get(way[way.len() - 1].as_str()) {
                way.push((*step).to_owned());
            }
            way.reverse();
            return Some(way);
        }
        for next in graph.get(at).into_iter().flatten() {
            if next != from && !before.contains_key(next.as_str()) {
                before.insert(next, at);
                waiting.push_back(next);
            }
        }
    }
    None
}

/// The ways in which the packages contradict `rows`. A crate may depend only on crates above it in
/// the table.
fn contradictions(rows: &[Row], graph: &Graph, own: &BTreeSet<String>) -> Vec<String> {
    let mut wrong = Vec::new();
    let listed: BTreeSet<&String> = rows.iter().map(|row| &row.name).collect();
    let unlisted = own.iter().filter(|name| !listed.contains(name));
    wrong.extend(unlisted.map(|name| format!("`{name}` is not in ARCHITECTURE.md")));
    for (at, row) in rows.iter().enumerate() {
        if !own.contains(&row.name) {
            wrong.push(format!(
                "ARCHITECTURE.md has `{}`, but the workspace does not",
                row.name
            ));
            continue;
        }
        let above: BTreeSet<&String> = rows[..at].iter().map(|row| &row.name).collect();
        for dependency in &graph[&row.name] {
            if listed.contains(dependency) && !above.contains(dependency) {
                wrong.push(format!("`{}` depends on `{dependency}`, which is below it", row.name));
            }
            if row.unused.contains(dependency) {
                wrong.push(format!("`{}` uses `{dependency}` itself", row.name));
            }
        }
        let ways = row.unlinked.iter().filter_map(|name| way(graph, &row.name, name));
        wrong.extend(ways.map(|way| format!("a forbidden dependency: {}", way.join(" -> "))));
    }
    wrong
}

#[test]
fn crates_depend_on_each_other_as_architecture_says() {
    let (rows, (graph, own)) = (crates_of_architecture(), packages());
    assert_eq!(contradictions(&rows, &graph, &own), Vec::<String>::new());
    // A dependency on a crate below, a package that is forbidden, and one through another are found.
    let with = |of: &str, more: &str| {
        let mut graph = graph.clone();
        graph.get_mut(of).unwrap().insert(more.to_owned());
        contradictions(&rows, &graph, &own)
    };
    let (first, last) = (&rows[0].name, &rows[rows.len() - 1].name);
    assert!(with(first, last).iter().any(|wrong| wrong.ends_with("is below it")));
    let direct = rows.iter().find(|row| !row.unused.is_empty()).unwrap();
    let found = with(&direct.name, direct.unused.first().unwrap());
    assert!(found.iter().any(|wrong| wrong.ends_with("itself")), "{found:?}");
    let found = with("tollgate-core", "tokio");
    let far = |wrong: &String| wrong.contains("tollgate-policy -> ") && wrong.ends_with(" -> tokio");
    assert!(found.iter().any(far), "{found:?}");
}

/// The table of sizes in ARCHITECTURE.md: the cells of each row.
fn figures(table: &str) -> BTreeMap<String, Vec<f64>> {
    let rows = table.lines().skip(2).map(|row| {
        let mut cells = row.trim_matches('|').split('|').map(str::trim);
        let name = cells.next().unwrap().trim_matches('`').to_owned();
        (name, cells.map(|cell| cell.parse().unwrap()).collect())
    });
    rows.collect()
}

#[test]
fn architecture_has_the_size_of_today() {
    let (written, today) = (xtask::figures::written(root()), xtask::figures::table(root()));
    let (written, today) = (figures(&written.unwrap()), figures(&today.unwrap()));
    let advice = "`cargo xtask figures` writes the table of ARCHITECTURE.md";
    assert!(written.keys().eq(today.keys()), "{advice}");
    for (name, now) in &today {
        let then = &written[name];
        let [.., lines] = now.as_slice() else { panic!("{now:?}") };
        let [.., lines_then] = then.as_slice() else {
            panic!("{then:?}")
        };
        assert!(
            (lines - lines_then).abs() <= lines_then * 0.05 + 50.0,
            "`{name}`: {advice}"
        );
    }
}

/// Most lines of a crate outside tests.
const CRATE_LINES: usize = 15_000;

#[test]
fn no_crate_is_too_large_or_has_modules_that_need_each_other() {
    for one in xtask::figures::crates(root()).unwrap() {
        let (name, lines) = (&one.name, one.lines.all());
        assert!(
            one.circles.is_empty(),
            "`{name}`: each of these modules needs the others, directly or through one another; move what they share \
             below them: {:?}",
            one.circles
        );
        assert!(
            lines <= CRATE_LINES,
            "`{name}`: {lines} lines, {CRATE_LINES} are allowed"
        );
    }
}

/// The top-level module of a file in a crate's `src`.
fn module_of(file: &Path, sources: &Path) -> String {
    let inner = file.strip_prefix(sources).unwrap();
    let first = inner.components().next().unwrap().as_os_str().to_str().unwrap();
    first.trim_end_matches(".rs").to_owned()
}

/// What two fronts share stands beside them, in a module or crate below both.
#[test]
fn no_front_knows_another() {
    let mut fronts = 0;
    for member in std::fs::read_dir(root().join("host")).unwrap() {
        let sources = member.unwrap().path().join("src");
        if !sources.is_dir() {
            continue;
        }
        let files = figures::files(&sources).unwrap();
        let texts: Vec<(String, String)> = files
            .iter()
            .map(|file| (module_of(file, &sources), std::fs::read_to_string(file).unwrap()))
            .collect();
        let with_front = texts.iter().filter(|(_, text)| text.contains("\nimpl Front for "));
        let modules: BTreeSet<&str> = with_front.map(|(module, _)| module.as_str()).collect();
        fronts += modules.len();
        for (module, text) in texts.iter().filter(|(module, _)| modules.contains(module.as_str())) {
            let named = figures::modules(text);
            let other = modules.iter().find(|other| *other != module && named.contains(**other));
            assert_eq!(other, None, "{}: what front `{module}` uses", sources.display());
        }
    }
    assert!(fronts >= 12, "{fronts}");
}

/// Folders with Rust code.
const CODE: [&str; 5] = ["host/", "tests/", "xtask/", "plugins/", "benches/"];

/// The words of a text that look like a source file.
fn sources(text: &str) -> BTreeSet<&str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || "/_.-".contains(c)))
        .filter(|word| CODE.iter().any(|folder| word.starts_with(folder)) && word.ends_with(".rs"))
        .collect()
}

#[test]
fn every_documented_source_file_exists() {
    let mut seen = 0;
    for document in documents() {
        // The changelog names files of earlier versions.
        if document.ends_with("CHANGELOG.md") {
            continue;
        }
        let text = std::fs::read_to_string(&document).unwrap();
        for source in sources(&text) {
            assert!(
                root().join(source).is_file(),
                "{}: there is no `{source}`",
                document.display()
            );
            seen += 1;
        }
    }
    assert!(seen > 20, "{seen}");
}

/// ARCHITECTURE.md gives paths below `host/` without `src/`, and in the section on fronts relative
/// to the gateway.
#[test]
fn every_short_path_in_architecture_exists() {
    let text = read("ARCHITECTURE.md");
    let mut seen = 0;
    for path in quoted(&text) {
        let is_path = path.ends_with(".rs") && !path.contains(' ') && !path.starts_with("tests/");
        if !is_path || path.starts_with("host/") {
            continue;
        }
        let full = match path.split_once('/') {
            Some((member, rest)) => root().join("host").join(member).join("src").join(rest),
            None => root().join("host/gateway/src").join(path),
        };
        // These stand for a file of every front.
        let is_pattern = ["route.rs", "permit.rs"].contains(&path);
        assert!(full.is_file() || is_pattern, "ARCHITECTURE.md: there is no `{path}`");
        seen += 1;
    }
    assert!(seen > 20, "{seen}");
}

/// The first cell of each row of ARCHITECTURE.md's table of fronts.
fn fronts_of_architecture(architecture: &str) -> BTreeSet<&str> {
    let fronts = architecture.split_once("\n## Fronts\n").unwrap().1;
    let fronts = fronts.split("\n## ").next().unwrap();
    let rows = fronts.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.filter_map(|row| row.split('`').next()).collect()
}

/// A newcomer reads docs/concepts.md for the fronts that there are.
#[test]
fn the_page_of_terms_has_every_front() {
    let architecture = read("ARCHITECTURE.md");
    let page = read("docs/concepts.md");
    let section = page.split_once("\n## Front\n").unwrap().1;
    let section = section.split("\n## ").next().unwrap().to_lowercase();
    // The page says what these serve: the console, connectors, and APIs for one's own tokens, decisions and projects.
    let by_content = ["sign_in", "operations", "access", "projects", "agents"];
    let mut names = fronts_of_architecture(&architecture);
    names.retain(|name| !by_content.contains(name));
    assert!(names.len() > 6, "{names:?}");
    let missing: Vec<_> = names
        .iter()
        .filter(|name| !section.contains(&name.replace('_', " ")))
        .collect();
    assert!(missing.is_empty(), "docs/concepts.md lacks the fronts {missing:?}");
}

/// Lists of fronts that people read have the fronts of the program, and no other.
#[test]
fn lists_of_fronts_are_complete() {
    // With every section that adds a front.
    let settings = "state: {directory: s}\npolicies: {directory: p}\nargocd: {server: 'https://argocd.example'}\n\
        applications: {}\nkubernetes: {publicURL: 'https://tollgate.example/k8s-proxy/'}\nstore: {url: 'sqlite:s.db'}";
    let config = raw::parse(settings, "t.yaml", Path::new("/")).value.unwrap();
    let routes = tollgate_gateway::routes(&config);
    let mut names: BTreeSet<&str> = routes.iter().map(|route| route.front).collect();
    // It has a separate listener; `none` is what is recorded before a front is known.
    names.insert("admission");
    assert!(names.contains("none") && names.len() > 12, "{names:?}");

    let label = LABELS.iter().find(|label| label.name == "front").unwrap();
    assert_eq!(
        quoted(&label.values.replace("`tollgate login`", "")),
        names,
        "labels.rs"
    );

    let console = read("host/console/src/pages/decisions.rs");
    let (_, list) = console.split_once("const FRONTS").unwrap();
    let list = list.split_once("= [").unwrap().1.split(']').next().unwrap();
    let offered: BTreeSet<&str> = list.split('"').skip(1).step_by(2).collect();
    assert_eq!(offered, names, "the console's filter of decisions");

    // Sign-in is two fronts to the program, and recorded by what it serves.
    let mut rows: BTreeSet<String> = names.iter().map(|name| name.replace('-', "_")).collect();
    for name in ["none", "console", "login"] {
        rows.remove(name);
    }
    rows.insert("sign_in".to_owned());
    let architecture = read("ARCHITECTURE.md");
    let written: BTreeSet<String> = fronts_of_architecture(&architecture)
        .into_iter()
        .map(str::to_owned)
        .collect();
    assert_eq!(written, rows, "ARCHITECTURE.md");
}

/// A text of the program, with lines that a string or a comment continues joined.
fn joined(source: &str) -> String {
    let mut text = String::new();
    for line in source.lines() {
        let line = line.trim().trim_start_matches('/').trim_start_matches('!').trim_start();
        text.push_str(line.strip_suffix('\\').unwrap_or(line));
        if !line.ends_with('\\') {
            text.push(' ');
        }
    }
    text.replace("\\\"", "\"")
}

/// Messages and comments say where the documentation is: the page exists, and so does the section they name.
#[test]
fn every_page_that_the_program_names_exists() {
    let mut seen = 0;
    let mut wrong = Vec::new();
    for file in figures::files(&root().join("host")).unwrap() {
        let text = joined(&std::fs::read_to_string(&file).unwrap());
        let mut at = 0;
        while let Some(found) = text[at..].find("docs/") {
            let start = at + found;
            at = start + 1;
            let rest = &text[start..];
            let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || "/_.-#".contains(c)));
            let link = rest[..end.unwrap_or(rest.len())].trim_end_matches('.');
            let (page, anchor) = link.split_once('#').unwrap_or((link, ""));
            if !page.ends_with(".md") || text[..start].ends_with('/') {
                continue;
            }
            seen += 1;
            let headings: Vec<String> = match std::fs::read_to_string(root().join(page)) {
                Ok(page) => page.lines().filter(|line| line.starts_with('#')).map(slug).collect(),
                Err(_) => Vec::new(),
            };
            let titled = text[..start].strip_suffix("\" in ");
            let section = titled.and_then(|before| before.rsplit('"').next()).map(slug);
            let section = section.unwrap_or_else(|| anchor.to_owned());
            if headings.is_empty() || !(section.is_empty() || headings.contains(&section)) {
                wrong.push(format!("{}: {link} {section}", file.display()));
            }
        }
    }
    assert!(seen > 40, "{seen}");
    assert!(wrong.is_empty(), "there is no such page or section: {wrong:#?}");
}
