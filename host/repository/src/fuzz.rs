//! Fuzz targets for repository URLs and for what git servers send.

use std::io::{Cursor, sink};

use gix::protocol::transport::Protocol;
use gix::protocol::transport::client::git::ConnectMode;
use gix::protocol::transport::client::git::blocking_io::Connection;

use crate::fetch::{greeting, references};
use crate::listing::choose;
use crate::location::Location;
use crate::spelling::{canonical, key, spellings};
use tollgate_core::glob::normalize_repository;
use tollgate_fuzz::{Target, first_line, inputs, strings, text};

pub(crate) mod objects;

const TARGETS: &[Target] = &[
    target("repository_url", repository_url, urls),
    target("git_listing", git_listing, listings),
];

const fn target(name: &'static str, run: fn(&[u8]), seeds: fn() -> Vec<Vec<u8>>) -> Target {
    Target { name, run, seeds }
}

/// Every target of this crate.
pub fn targets() -> Vec<Target> {
    [TARGETS, objects::TARGETS].concat()
}

fn urls() -> Vec<Vec<u8>> {
    let mut seeds = inputs(strings(
        &["tests/cases/applicationsets.yaml", "tests/cases/glob.yaml"],
        &["repoURL", "url", "repository", "repo"],
    ));
    seeds.extend(inputs([
        "https://user:secret@Host.example:443/team/%61pp.git/",
        "file:///srv/git/a",
        "/srv/git/../a",
        "git@github.com:a/b.git",
        "ssh://git@host/a",
    ]));
    seeds
}

/// The canonical spelling refers to the same location, and every spelling to the same repository.
fn repository_url(data: &[u8]) {
    let Some(input) = text(data) else { return };
    let _ = (key(input), normalize_repository(input));
    let Ok(location) = Location::parse(input) else { return };
    let canonical_form = canonical(&location);
    assert_eq!(spellings(&location).first(), Some(&canonical_form), "{input:?}");
    if let Location::Remote(url) = &location {
        assert!(matches!(url.scheme(), "https" | "http"), "{input:?}");
        assert!(url.username().is_empty() && url.password().is_none(), "{input:?}");
    }
}

fn listings() -> Vec<Vec<u8>> {
    // A revision, then what the server sends: capabilities, then references.
    let line = |text: &str| format!("{:04x}{text}", text.len() + 4);
    let greeting = [
        line("version 2\n"),
        line("agent=git/2.39\n"),
        line("ls-refs=unborn\n"),
        line("fetch=shallow filter\n"),
        line("object-format=sha1\n"),
        "0000".to_owned(),
    ]
    .concat();
    let id = "aaaaaaa111111111111111111111111111111111";
    let refs = [
        line(&format!("{id} HEAD symref-target:refs/heads/main\n")),
        line(&format!("{id} refs/heads/main\n")),
        line(&format!("{id} refs/tags/v1 peeled:{id}\n")),
        line("unborn HEAD symref-target:refs/heads/main\n"),
        "0000".to_owned(),
    ]
    .concat();
    inputs([
        format!("main\n{greeting}{refs}"),
        format!("v1\n{greeting}{refs}"),
        format!("aaaaaaa1\n{greeting}0000"),
        format!(
            "HEAD\n{}{}0000",
            line(&format!("{id} HEAD\0multi_ack agent=git\n")),
            line(&format!("{id} refs/heads/main\n"))
        ),
    ])
}

/// A revision resolves to a commit of the server's list or to an error, regardless of what the
/// server sends.
fn git_listing(data: &[u8]) {
    let input = String::from_utf8_lossy(data);
    let (revision, _) = first_line(&input);
    let Some(at) = data.iter().position(|byte| *byte == b'\n') else {
        return;
    };
    let sent = data.get(at + 1..).unwrap_or_default().to_vec();
    // The library panics at some of these; `greeting` catches that, but libFuzzer would still
    // report it.
    if sent.windows(7).any(|word| word == b"symref=") {
        return;
    }
    let mut transport = Connection::new(
        Cursor::new(sent),
        sink(),
        Protocol::V2,
        "/",
        None::<(&str, _)>,
        ConnectMode::Daemon,
        false,
    );
    let Ok(mut handshake) = greeting(&mut transport) else {
        return;
    };
    let listed = references(&mut handshake, &mut transport, revision);
    if let Ok(refs) = listed {
        let _ = choose(&refs, revision);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_target_holds_on_its_seeds_earlier_finds_and_mutations() {
        tollgate_fuzz::check(&super::targets());
    }
}
