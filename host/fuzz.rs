//! Fuzz targets: every parser of bytes that come from outside.
//!
//! A target takes any bytes and must neither panic nor break the properties it asserts.
//! `cargo xtask fuzz` runs targets under libFuzzer, with the library instrumented; the unit
//! tests of this module run each on its seeds, on the finds of earlier runs and on seeded
//! mutations of both. The module is part of no other build.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::applicationset::{Budget, Limits};

mod applicationset;
mod http;
mod kubernetes;
mod policy;

#[cfg(test)]
mod tests;

/// A parser, and the inputs a fuzzer starts from.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// In snake case; `cargo xtask fuzz NAME`.
    pub name: &'static str,
    /// Runs the parser once. Panics where a property does not hold.
    pub run: fn(&[u8]),
    /// Valid and nearly valid inputs.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// Every target.
pub fn targets() -> Vec<Target> {
    [
        crate::server::fuzz::TARGETS,
        http::TARGETS,
        crate::authenticate::fuzz::TARGETS,
        policy::TARGETS,
        kubernetes::TARGETS,
        applicationset::TARGETS,
        crate::plugin::fuzz::TARGETS,
        crate::repository::fuzz::TARGETS,
        crate::repository::fuzz::objects::TARGETS,
    ]
    .concat()
}

/// Little of everything: an input that is stopped by a bound is as good as one that ends.
pub(crate) fn budget() -> Budget {
    Budget::new(Limits {
        applications: 100,
        parameters: 1_000,
        generators: 20,
        bytes: 4 * 1024 * 1024,
        time: Duration::from_secs(5),
    })
}

/// A file or folder of the checkout.
pub(crate) fn checkout(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Most bytes of one seed: longer files slow a fuzzer down more than they teach it.
const MOST_SEED_BYTES: usize = 16 * 1024;

/// The files below `folder` whose names end with one of `endings`.
///
/// A folder that is missing has none; the tests notice targets without seeds.
pub(crate) fn files(folder: &str, endings: &[&str]) -> Vec<Vec<u8>> {
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
                found.extend(std::fs::read(path).ok().filter(|bytes| bytes.len() <= MOST_SEED_BYTES));
            }
        }
    }
    found.sort();
    found
}

/// The values under the keys `keys`, at any depth, in YAML files of the checkout.
pub(crate) fn values(paths: &[&str], keys: &[&str]) -> Vec<Value> {
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

/// As [`values`], strings alone, each once.
pub(crate) fn strings(paths: &[&str], keys: &[&str]) -> Vec<String> {
    let mut texts: Vec<String> = values(paths, keys)
        .into_iter()
        .filter_map(|value| match value {
            Value::String(text) if text.len() <= MOST_SEED_BYTES => Some(text),
            _ => None,
        })
        .collect();
    texts.sort();
    texts.dedup();
    texts
}

/// Texts as inputs.
pub(crate) fn inputs<T: AsRef<[u8]>>(texts: impl IntoIterator<Item = T>) -> Vec<Vec<u8>> {
    texts.into_iter().map(|text| text.as_ref().to_vec()).collect()
}

/// The input as text, where it is one.
pub(crate) fn text(data: &[u8]) -> Option<&str> {
    std::str::from_utf8(data).ok()
}

/// The input's first line and what follows it.
pub(crate) fn first_line(text: &str) -> (&str, &str) {
    text.split_once('\n').unwrap_or((text, ""))
}

/// Header fields, one `name: value` a line; lines that are none are left out.
pub(crate) fn fields(data: &[u8]) -> ::http::HeaderMap {
    let mut fields = ::http::HeaderMap::new();
    for line in data.split(|byte| *byte == b'\n') {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else {
            continue;
        };
        let (name, value) = line.split_at_checked(colon).unwrap_or_default();
        let value = value.get(1..).unwrap_or_default().trim_ascii();
        let name = ::http::HeaderName::from_bytes(name);
        let value = ::http::HeaderValue::from_bytes(value);
        if let (Ok(name), Ok(value)) = (name, value) {
            fields.append(name, value);
        }
    }
    fields
}
