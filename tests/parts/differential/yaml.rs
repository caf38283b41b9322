//! Compares how YAML is read with Argo CD's reader, for files of git generators, `elementsYaml`,
//! `templatePatch`, `fromYaml` and `fromYamlArray`.
//!
//! A document that we alone refuse is counted under the name of the refusal, because it generates
//! nothing. An everyday document must not be refused.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tollgate_applicationset::yaml::{DuplicateKeys, Error, read};
use tollgate_applicationset::{GenerationBudget, patch};
use tollgate_config::GenerationLimits;

use crate::differential::exception::Exception;
use crate::differential::harness::{Kind, Outcome, Verdict, run};
use crate::differential::random::Random;
use test_support::judge::Judge;

mod draw;
mod words;

/// A document and where it is used.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Case {
    place: Place,
    /// Whether it is an everyday document, which must be read.
    everyday: bool,
    /// U+F780 to U+F7FF stand for the single bytes 0x80 to 0xFF, which JSON cannot express.
    text: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Place {
    /// A file of a git generator, or `elementsYaml`: a mapping, or a list of mappings.
    #[default]
    Generator,
    /// `templatePatch`.
    Patch,
    /// `fromYaml`.
    Map,
    /// `fromYamlArray`.
    List,
}

impl Case {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for letter in self.text.chars() {
            match u32::from(letter) {
                code @ 0xf780..=0xf7ff => bytes.push(u8::try_from(code - 0xf700).unwrap()),
                _ => bytes.extend(letter.encode_utf8(&mut [0; 4]).bytes()),
            }
        }
        bytes
    }

    /// The value that we read, if it has a shape that the place accepts.
    fn ours(&self) -> Result<Value, String> {
        let bytes = self.bytes();
        let text = std::str::from_utf8(&bytes).map_err(|_| "is not UTF-8 text".to_owned())?;
        let yaml = |twice| {
            read(text, twice, &mut |_| Ok::<_, ()>(())).map_err(|error| match error {
                Error::Syntax(what) => what,
                Error::Limit(()) => panic!("the test sets no limit"),
            })
        };
        let other = || Err("has another shape".to_owned());
        let is_object = |item: &Value| item.is_object() || item.is_null();
        match self.place {
            Place::Generator => match yaml(DuplicateKeys::Refused)? {
                Value::Null => Ok(Value::Object(serde_json::Map::new())),
                Value::Object(object) => Ok(Value::Object(object)),
                Value::Array(items) if items.iter().all(is_object) => Ok(Value::Array(items)),
                _ => other(),
            },
            Place::Patch => patch::read(text, &GenerationBudget::new(GenerationLimits::default()))
                .map_err(|error| error.to_string()),
            Place::Map => match yaml(DuplicateKeys::LastWins)? {
                Value::Null => Ok(Value::Object(serde_json::Map::new())),
                Value::Object(object) => Ok(Value::Object(object)),
                _ => other(),
            },
            Place::List => match yaml(DuplicateKeys::LastWins)? {
                Value::Null => Ok(Value::Array(Vec::new())),
                Value::Array(items) => Ok(Value::Array(items)),
                _ => other(),
            },
        }
    }
}

struct Documents;

impl Kind for Documents {
    type Case = Case;
    const NAME: &'static str = "yaml";
    // No document is denied.
    const FEWEST: [u64; 3] = [4000, 0, 500];

    fn draw(random: &mut Random) -> Case {
        draw::case(random)
    }

    fn compare(case: &Case, theirs: Result<&Value, &str>, _: &Judge) -> Vec<Outcome> {
        let outcome = match (case.ours(), theirs) {
            (Ok(ours), Ok(theirs)) if is_equal(&ours, theirs) => Outcome::Same(Verdict::Allow),
            (Err(_), Err(_)) => Outcome::Same(Verdict::Refused),
            (ours, theirs) => match ours
                .as_ref()
                .err()
                .filter(|_| !case.everyday)
                .and_then(|what| refusal(what).or_else(|| after_brackets(case, theirs.ok()?)))
            {
                Some(exception) => Outcome::Exception(exception),
                None => Outcome::Unexplained(format!("ours {ours:?}, theirs {theirs:?}")),
            },
        };
        vec![outcome]
    }
}

/// The exception for a document that we refuse because of what follows its closing bracket. Argo
/// CD's scanner does not look that far ahead.
fn after_brackets(case: &Case, theirs: &Value) -> Option<Exception> {
    let ends = case.text.match_indices([']', '}']).map(|(at, _)| at + 1);
    let mut starts = ends.map(|end| Case {
        text: case.text.get(..end).unwrap().to_owned(),
        ..case.clone()
    });
    let is_alike = |start: Case| start.ours().is_ok_and(|ours| is_equal(&ours, theirs));
    starts.any(is_alike).then_some(Exception::YamlSyntax)
}

/// Whether templates see both as the same. They see every number as a float.
fn is_equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            // serde_json parses the judge's answer, and may get the last bit of a float wrong.
            let bits = |number: &serde_json::Number| number.as_f64().unwrap().to_bits();
            bits(one).abs_diff(bits(other)) <= 1
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| is_equal(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let mut members = one.iter().zip(other);
            one.len() == other.len() && members.all(|(one, other)| one.0 == other.0 && is_equal(one.1, other.1))
        }
        (one, other) => one == other,
    }
}

/// The exception that our refusal is, by its message.
fn refusal(what: &str) -> Option<Exception> {
    let named = [
        ("stands twice in one mapping", Exception::YamlKeyTwice),
        ("a key must be text", Exception::YamlKey),
        ("a tag other than", Exception::YamlTag),
        ("nest deeper than", Exception::YamlBounds),
        ("almost all of it is what aliases bring", Exception::YamlBounds),
        // Argo CD does not check the value of the first of two equal keys.
        ("has no JSON", Exception::YamlKeyTwice),
        ("is not read", Exception::YamlSyntax),
        ("are not read", Exception::YamlSyntax),
        // go-yaml is based on an older libyaml, where `{a:}` has the key `a:`, and `"\'"` is `'`.
        ("found unexpected ':'", Exception::YamlSyntax),
        ("found unknown escape character", Exception::YamlSyntax),
        ("did not find expected whitespace or line break", Exception::YamlSyntax),
        ("did not find expected tag URI", Exception::YamlSyntax),
        // Argo CD does not read past the first document.
        ("is not UTF-8 text", Exception::YamlSyntax),
    ];
    let found = named.into_iter().find(|(text, _)| what.contains(text));
    found.map(|(_, exception)| exception)
}

#[test]
fn documents_are_those_of_argo_cd() {
    run::<Documents>();
}
