//! The table of Argo CD's API against the release that the tests pin: its `.proto` files and its
//! `swagger.json`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use protox_parse::parse;
use serde_json::Value;

use test_support::judge::argocd;
use tollgate_argocd_fronts::methods::{ApiMethod, FieldPath, RestBody, all};

/// Fields of a message: number and type by name.
type Fields = BTreeMap<String, (i32, String)>;

/// What a method is in the `.proto` files.
#[derive(Debug)]
struct Defined {
    request: String,
    /// HTTP method and path of each form.
    forms: BTreeSet<(String, String)>,
    /// `body` of the first form.
    body: String,
}

#[derive(Debug, Default)]
struct Definitions {
    /// By service and name.
    methods: BTreeMap<(String, String), Defined>,
    /// By package and name.
    messages: BTreeMap<(String, String), Fields>,
}

impl Definitions {
    fn read(root: &Path) -> Self {
        let mut all = Self::default();
        let services = std::fs::read_dir(root.join("server")).unwrap();
        let services = services.flat_map(|folder| std::fs::read_dir(folder.unwrap().path()).unwrap());
        for path in services.map(|file| file.unwrap().path()) {
            all.add(&path);
        }
        all.add(&root.join("pkg/apis/application/v1alpha1/generated.proto"));
        all.add(&root.join("k8s.io/apimachinery/pkg/apis/meta/v1/generated.proto"));
        all
    }

    fn add(&mut self, path: &Path) {
        let text = std::fs::read_to_string(path).unwrap();
        let file = parse(&path.display().to_string(), &text).unwrap();
        let package = file.package().to_owned();
        for message in &file.message_type {
            let fields = message.field.iter();
            let fields = fields.map(|field| {
                let kind = field.type_name().trim_start_matches('.').to_owned();
                (field.name().to_owned(), (field.number(), kind))
            });
            let name = (package.clone(), message.name().to_owned());
            self.messages.insert(name, fields.collect());
        }
        for service in &file.service {
            for method in &service.method {
                let options = method.options.as_ref().unwrap();
                let (forms, body) = forms(&options.uninterpreted_option);
                let defined = Defined {
                    request: method.input_type().to_owned(),
                    forms,
                    body,
                };
                let name = (format!("{package}.{}", service.name()), method.name().to_owned());
                self.methods.insert(name, defined);
            }
        }
    }

    fn message(&self, package: &str, name: &str) -> Option<(&str, &Fields)> {
        let (package, name) = name.rsplit_once('.').unwrap_or((package, name));
        let ((package, _), fields) = self.messages.get_key_value(&(package.to_owned(), name.to_owned()))?;
        Some((package, fields))
    }

    /// The numbers of a field of a method's request.
    fn numbers(&self, method: &ApiMethod, field: FieldPath) -> Vec<u32> {
        let defined = &self.methods[&(method.service.to_owned(), method.name.to_owned())];
        let package = method.service.split('.').next().unwrap();
        let mut place = (package.to_owned(), defined.request.clone());
        let mut numbers = Vec::new();
        for name in field.name.split('.') {
            let (package, fields) = self.message(&place.0, &place.1).unwrap_or_else(|| panic!("{place:?}"));
            let (number, kind) = fields.get(name).unwrap_or_else(|| panic!("{place:?} has no `{name}`"));
            numbers.push(u32::try_from(*number).unwrap());
            place = (package.to_owned(), kind.clone());
        }
        numbers
    }
}

/// Reads the options `google.api.http`, in either of their notations.
fn forms(options: &[prost_types::UninterpretedOption]) -> (BTreeSet<(String, String)>, String) {
    const VERBS: [&str; 5] = ["get", "put", "post", "delete", "patch"];
    let mut forms = BTreeSet::new();
    let mut body = String::new();
    let is_http = |option: &&prost_types::UninterpretedOption| {
        option
            .name
            .first()
            .is_some_and(|part| part.name_part == "google.api.http")
    };
    for option in options.iter().filter(is_http) {
        if let Some(verb) = option.name.get(1) {
            let path = String::from_utf8(option.string_value().to_vec()).unwrap();
            forms.insert((verb.name_part.to_uppercase(), path));
        }
        let text = option.aggregate_value();
        // `key : "value"`, some of them in braces.
        let texts = text.split('"').skip(1).step_by(2);
        let keys = text.split('"').step_by(2).map(|outside| {
            let outside = outside.trim_end_matches(|letter: char| !letter.is_alphabetic());
            outside
                .rsplit(|letter: char| !letter.is_alphabetic())
                .next()
                .unwrap_or_default()
        });
        for (key, value) in std::iter::zip(keys, texts) {
            match key {
                "body" => value.clone_into(&mut body),
                verb if VERBS.contains(&verb) => {
                    forms.insert((verb.to_uppercase(), value.to_owned()));
                }
                other => panic!("`{other}` in {text}"),
            }
        }
    }
    (forms, body)
}

fn table_forms(method: &ApiMethod) -> BTreeSet<(String, String)> {
    let paths = std::iter::once(method.rest.path).chain(method.rest.other_path);
    paths
        .map(|path| (method.rest.verb.as_ref().to_owned(), path.to_owned()))
        .collect()
}

#[test]
fn the_table_has_every_method_of_the_release_as_it_is_defined() {
    let definitions = Definitions::read(&argocd().files);
    assert!(definitions.methods.len() > 90, "{}", definitions.methods.len());
    let mut missing: BTreeSet<_> = definitions.methods.keys().cloned().collect();
    for method in all() {
        let name = (method.service.to_owned(), method.name.to_owned());
        assert!(missing.remove(&name), "{name:?} is not defined, or twice in the table");
        let defined = &definitions.methods[&name];
        assert_eq!(table_forms(method), defined.forms, "{name:?}");
        let body = match method.rest.body {
            RestBody::None => "",
            RestBody::Message => "*",
            RestBody::Field(field) => field,
        };
        assert_eq!(body, defined.body, "{name:?}");
        for field in method.fields.all() {
            // A field of a `oneof` is listed like the others.
            let numbers: Vec<u32> = field.numbers().collect();
            assert_eq!(numbers, definitions.numbers(method, field), "{name:?} {}", field.name);
        }
    }
    assert_eq!(missing, BTreeSet::new(), "the table lacks them");
}

/// Names of fields that would name a project, an Application or its namespace. A method that has one
/// and does not name it in the table would be judged without it.
#[test]
fn no_field_that_names_an_application_is_forgotten() {
    /// In messages whose `name` is something else.
    const OTHER: [&str; 5] = [
        "account.AccountService",
        "applicationset.ApplicationSetService",
        "cluster.ClusterService",
        "gpgkey.GPGKeyService",
        "session.SessionService",
    ];
    let definitions = Definitions::read(&argocd().files);
    for method in all() {
        let package = method.service.split('.').next().unwrap();
        let request = &definitions.methods[&(method.service.to_owned(), method.name.to_owned())].request;
        let Some((_, fields)) = definitions.message(package, request) else {
            continue;
        };
        let has = |names: &[&str]| names.iter().any(|name| fields.contains_key(*name));
        let is_other = OTHER.contains(&method.service);
        if has(&["appNamespace"]) {
            assert!(method.fields.namespace.is_some(), "{}", method.name);
        }
        if has(&["name", "appName", "applicationName"]) && method.service.starts_with("application.") {
            assert!(method.fields.application.is_some(), "{}", method.name);
        }
        if has(&["project", "appProject"]) && !is_other {
            // A query's projects only filter.
            let is_query = request == "ApplicationQuery";
            assert!(method.fields.project.is_some() || is_query, "{}", method.name);
        }
    }
}

#[test]
fn the_table_has_the_paths_of_swagger_json() {
    let text = std::fs::read_to_string(argocd().files.join("assets/swagger.json")).unwrap();
    let swagger: Value = serde_json::from_str(&text).unwrap();
    let mut defined = BTreeSet::new();
    for (path, verbs) in swagger["paths"].as_object().unwrap() {
        for verb in verbs.as_object().unwrap().keys() {
            defined.insert((verb.to_uppercase(), path.clone()));
        }
    }
    let table: BTreeSet<_> = all().flat_map(table_forms).collect();
    let plain = |forms: BTreeSet<(String, String)>| -> BTreeSet<(String, String)> {
        forms
            .into_iter()
            .map(|(verb, path)| (verb, path.replace("=**", "")))
            .collect()
    };
    assert_eq!(plain(table), plain(defined));
}
