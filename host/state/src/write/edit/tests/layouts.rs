//! Tests with random objects in random layouts: a change does what it should and no more.

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::{ObjectPosition, at, documents, replace};
use crate::write::value::{Quotes, YamlEmitter};

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z][a-z0-9-]{0,6}",
        Just("*".to_owned()),
        Just("https://kubernetes.default.svc".to_owned()),
        "[ -~é]{0,6}",
    ]
}

fn entry() -> impl Strategy<Value = Value> {
    (text(), text(), text()).prop_map(|(server, namespace, account)| {
        json!({"server": server, "namespace": namespace, "defaultServiceAccount": account})
    })
}

/// How one entry is written: in lines or brackets, and what follows it.
#[derive(Clone, Debug)]
struct EntryLayout {
    is_flow: bool,
    above: Option<&'static str>,
    behind: Option<&'static str>,
}

fn entry_layout() -> impl Strategy<Value = EntryLayout> {
    let comment = || proptest::option::of(prop_oneof![Just("# note"), Just("# - server: 'x'"), Just("#")]);
    (any::<bool>(), comment(), comment()).prop_map(|(is_flow, above, behind)| EntryLayout { is_flow, above, behind })
}

#[derive(Clone, Debug)]
struct FileLayout {
    step: usize,
    is_crlf: bool,
    is_always_quoted: bool,
    ends_with_line_break: bool,
    before: &'static str,
    after: &'static str,
}

fn file_layout() -> impl Strategy<Value = FileLayout> {
    let before = prop_oneof![Just(""), Just("# top\n---\n"), Just("a: &x [1, 2]\nb: *x\n---\n")];
    let after = prop_oneof![
        Just(""),
        Just("  roles: []\n"),
        Just("  # below\n\nstatus:   {}  # odd\n"),
        Just("---\nc: |\n  text\n\n"),
    ];
    (0_usize..4, any::<[bool; 3]>(), before, after).prop_map(|(step, flags, before, after)| FileLayout {
        step,
        is_crlf: flags[0],
        is_always_quoted: flags[1],
        ends_with_line_break: flags[2],
        before,
        after,
    })
}

/// Each entry's lines, and the text around them.
fn write(entries: &[(Value, EntryLayout)], file_layout: &FileLayout) -> (String, Vec<String>, String) {
    let emitter = YamlEmitter {
        line_break: "\n",
        list_step: file_layout.step,
        order: &["server"],
        quotes: if file_layout.is_always_quoted {
            Quotes::Always
        } else {
            Quotes::WhereNeeded
        },
        texts: None,
    };
    let indent = " ".repeat(2 + file_layout.step);
    let head = format!(
        "{}kind: AppProject\nspec:\n  destinationServiceAccounts:\n",
        file_layout.before
    );
    let lines = entries.iter().map(|(entry, entry_layout)| {
        let above = entry_layout
            .above
            .map_or_else(String::new, |text| format!("{indent}{text}\n"));
        let mut lines = String::new();
        if entry_layout.is_flow {
            lines = format!("{indent}- {}\n", emitter.inline(entry));
        } else {
            emitter.put_item(&mut lines, entry, indent.len(), indent.len());
        }
        if let Some(behind) = entry_layout.behind {
            lines.truncate(lines.len() - 1);
            lines = format!("{lines} {behind}\n");
        }
        format!("{above}{lines}")
    });
    (head, lines.collect(), file_layout.after.to_owned())
}

fn whole((head, lines, tail): &(String, Vec<String>, String), file_layout: &FileLayout) -> String {
    let mut text = format!("{head}{}{tail}", lines.concat());
    if !file_layout.ends_with_line_break && !text.ends_with("\n\n") {
        text.truncate(text.trim_end_matches('\n').len());
    }
    if file_layout.is_crlf {
        text.replace('\n', "\r\n")
    } else {
        text
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_edit_makes_exactly_the_requested_change(
        entries in vec((entry(), entry_layout()), 1..5),
        file_layout in file_layout(),
        (new, where_to, gone) in (vec(entry(), 0..3), any::<prop::sample::Index>(), any::<prop::sample::Index>()),
    ) {
        let parts = write(&entries, &file_layout);
        let text = whole(&parts, &file_layout);
        let before = documents(&text).expect("the test writes YAML");
        let document = before.iter().position(|root| root.get("kind").is_some()).expect("an object");
        // If an entry only moves, either it or its neighbor may be rewritten.
        prop_assume!(new.iter().all(|entry| entries.iter().all(|(there, _)| there != entry)));
        let position = ObjectPosition { document, item: None };
        let mut wanted = at(&before, position).expect("an object").clone();
        let list = wanted["spec"]["destinationServiceAccounts"].as_array_mut().expect("a list");
        let gone = gone.index(list.len());
        list.remove(gone);
        let to = where_to.index(list.len() + 1);
        for entry in new.iter().rev() {
            list.insert(to, entry.clone());
        }
        let after = replace(&text, position, &wanted).expect("a common layout is edited");
        let mut expected = before;
        expected[document] = wanted;
        prop_assert_eq!(documents(&after), Ok(expected));
        // Every other line is still there, in its order.
        let mut rest = after.as_str();
        let (head, lines, tail) = parts;
        let same: Vec<Value> = entries.iter().map(|(entry, _)| entry.clone()).collect();
        // An equal neighbor may be removed instead.
        let kept = lines.iter().enumerate().filter(|(at, _)| same[*at] != same[gone]).map(|(_, lines)| lines.as_str());
        let pieces: Vec<&str> = std::iter::once(head.as_str()).chain(kept).chain([tail.as_str()]).collect();
        for line in pieces.iter().flat_map(|piece| piece.lines()) {
            // The key of a list that is now empty is followed by brackets.
            let line = if file_layout.is_crlf { format!("{line}\r") } else { line.to_owned() };
            let line = line.trim_end();
            let Some(found) = rest.find(line) else {
                return Err(TestCaseError::fail(format!("{line:?} is gone from {after:?}, which was {text:?}")));
            };
            rest = rest.split_at(found + line.len()).1;
        }
    }
}
