//! What fuzz targets share: seeds from the checkout, and an ordinary test that runs targets on
//! seeds, on inputs that failed earlier and on seeded mutations of both.
//!
//! Each target is in the crate of its parser, in a module that only tests and the feature `fuzz`
//! compile.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic fails a test")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use serde_json::Value;

/// A parser, and the inputs a fuzzer starts from.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Name in snake case, for `cargo xtask fuzz NAME`.
    pub name: &'static str,
    /// Runs the parser once. Panics if a property does not hold.
    pub run: fn(&[u8]),
    /// Valid and nearly valid inputs.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// Runs each target on its seeds, on inputs that failed earlier and on seeded mutations of both.
///
/// # Panics
/// If a target has no seeds, or fails on an input.
pub fn check(targets: &[Target]) {
    for target in targets {
        let mut corpus = (target.seeds)();
        assert!(!corpus.is_empty(), "target `{}` has no seeds", target.name);
        corpus.extend(past_failures(target));
        for input in &corpus {
            run(target, input);
        }
        let mut random = Random(13);
        for _ in 0..MUTATIONS {
            run(target, &mutate(&mut random, &corpus));
        }
    }
}

/// Number of mutated inputs for each target in an ordinary test run.
const MUTATIONS: u64 = 1_500;

/// Length limit of a mutated input.
const MAX_BYTES: usize = 8 * 1024;

/// Byte sequences with a meaning in one of the parsed formats.
const TOKENS: [&[u8]; 28] = [
    b"{{",
    b"}}",
    b"%2e",
    b"%2F",
    b"%00",
    b"\r\n",
    b"\n",
    b"..",
    b"//",
    b"*",
    b"[",
    b"]",
    b"\"",
    b"'",
    b"\\",
    b": ",
    b"- ",
    b"&a ",
    b"*a",
    b"<<: ",
    b"\xff",
    b"\xc3\xa9",
    b"\0",
    b",",
    b"=",
    b"|",
    b"$",
    b"-1",
];

/// The pseudorandom number generator `SplitMix64` (Steele, Lea, Flood: Fast Splittable
/// Pseudorandom Number Generators). It is short, and gives the same numbers on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(bound.max(1)).unwrap()).unwrap()
    }
}

/// Changes a random input of the corpus one to four times: flips a bit, inserts a byte or a token,
/// removes or repeats bytes, or replaces its end with the end of another input.
fn mutate(random: &mut Random, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut input = corpus[random.below(corpus.len())].clone();
    for _ in 0..=random.below(4) {
        let at = random.below(input.len() + 1);
        match random.below(6) {
            0 if at < input.len() => input[at] ^= 1 << random.below(8),
            1 => drop(input.splice(at..at, TOKENS[random.below(TOKENS.len())].iter().copied())),
            2 => {
                let end = (at + random.below(16)).min(input.len());
                input.drain(at..end);
            }
            3 => {
                let end = (at + random.below(32)).min(input.len());
                let copied = input[at..end].to_vec();
                drop(input.splice(at..at, copied));
            }
            4 => {
                let other = &corpus[random.below(corpus.len())];
                input.truncate(at);
                input.extend_from_slice(&other[random.below(other.len() + 1)..]);
            }
            _ => input.insert(at, u8::try_from(random.below(256)).unwrap()),
        }
    }
    input.truncate(MAX_BYTES);
    input
}

/// Inputs that failed in earlier runs, the files of `tests/data/fuzz/<target>/`.
fn past_failures(target: &Target) -> Vec<Vec<u8>> {
    let Ok(entries) = std::fs::read_dir(checkout("tests/data/fuzz").join(target.name)) else {
        return Vec::new();
    };
    entries
        .map(|entry| std::fs::read(entry.unwrap().path()).unwrap())
        .collect()
}

/// Runs the target on one input. If it panics, panics with the bytes of the input.
fn run(target: &Target, input: &[u8]) {
    let outcome = catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    assert!(
        outcome.is_ok(),
        "target `{}` fails on {:?}",
        target.name,
        input.escape_ascii().to_string()
    );
}

/// Path of a file or folder of the checkout.
pub fn checkout(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").join(path)
}

/// The text of every source file below `host`.
pub fn sources() -> Vec<String> {
    let mut texts = Vec::new();
    let mut folders = vec![checkout("host")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                texts.push(std::fs::read_to_string(path).unwrap());
            }
        }
    }
    texts
}

/// Size limit of a seed. Longer files slow a fuzzer down more than they help it.
const MAX_SEED_BYTES: usize = 16 * 1024;

/// The contents of files below `folder` whose names end with one of `endings`.
///
/// A missing folder has none; [`check`] fails if a target then has no seeds.
pub fn files(folder: &str, endings: &[&str]) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let mut folders = vec![checkout(folder)];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(folder) else {
            continue;
        };
        for path in entries.filter_map(Result::ok).map(|entry| entry.path()) {
            if path.is_dir() {
                folders.push(path);
            } else if endings.iter().any(|ending| path.to_string_lossy().ends_with(ending)) {
                found.extend(std::fs::read(path).ok().filter(|bytes| bytes.len() <= MAX_SEED_BYTES));
            }
        }
    }
    found.sort();
    found
}

/// The values under the keys `keys`, at any depth, in YAML files of the checkout.
pub fn values(paths: &[&str], keys: &[&str]) -> Vec<Value> {
    let mut found = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(checkout(path)).unwrap_or_default();
        let document: Value = serde_saphyr::from_str(&text).unwrap_or_default();
        collect(&document, keys, &mut found);
    }
    found
}

fn collect(value: &Value, keys: &[&str], found: &mut Vec<Value>) {
    match value {
        Value::Object(members) => {
            for (key, member) in members {
                if keys.contains(&key.as_str()) {
                    found.push(member.clone());
                }
                collect(member, keys, found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, keys, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// As [`values`], but only the strings, without duplicates.
pub fn strings(paths: &[&str], keys: &[&str]) -> Vec<String> {
    let mut texts: Vec<String> = values(paths, keys)
        .into_iter()
        .filter_map(|value| match value {
            Value::String(text) if text.len() <= MAX_SEED_BYTES => Some(text),
            _ => None,
        })
        .collect();
    texts.sort();
    texts.dedup();
    texts
}

/// Converts texts to inputs.
pub fn inputs<T: AsRef<[u8]>>(texts: impl IntoIterator<Item = T>) -> Vec<Vec<u8>> {
    texts.into_iter().map(|text| text.as_ref().to_vec()).collect()
}

/// The input as text, if it is UTF-8.
pub fn text(data: &[u8]) -> Option<&str> {
    std::str::from_utf8(data).ok()
}

/// The first line of `text`, and the rest.
pub fn first_line(text: &str) -> (&str, &str) {
    text.split_once('\n').unwrap_or((text, ""))
}

/// Header fields, one `name: value` per line. Invalid lines are ignored.
pub fn fields(data: &[u8]) -> http::HeaderMap {
    let mut fields = http::HeaderMap::new();
    for line in data.split(|byte| *byte == b'\n') {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else {
            continue;
        };
        let (name, value) = line.split_at_checked(colon).unwrap_or_default();
        let value = value.get(1..).unwrap_or_default().trim_ascii();
        let name = http::HeaderName::from_bytes(name);
        let value = http::HeaderValue::from_bytes(value);
        if let (Ok(name), Ok(value)) = (name, value) {
            fields.append(name, value);
        }
    }
    fields
}
