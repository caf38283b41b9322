//! Tests of YAML parsing and of the memory it may take.

use serde_json::{Value, json};

use super::{DuplicateKeys, Error, MAX_NESTING, read};
use crate::heap_size;

fn within(text: &str, duplicate_keys: DuplicateKeys, allowed: u64) -> Result<Value, Error<u64>> {
    let mut taken = 0;
    read(text, duplicate_keys, &mut |bytes| {
        taken += bytes;
        if taken > allowed { Err(taken) } else { Ok(()) }
    })
}

fn unlimited(text: &str) -> Result<Value, Error<u64>> {
    within(text, DuplicateKeys::LastWins, u64::MAX)
}

#[test]
fn documents_are_read_as_argo_cd_reads_them() {
    for (text, wanted) in [
        ("", Value::Null),
        ("# nothing", Value::Null),
        ("~", Value::Null),
        ("a: b\n---\nc: d\n", json!({"a": "b"})),
        // An empty document counts as one; nothing after the first document is parsed.
        ("---\n---\na: b\n", Value::Null),
        ("---\na: b\n---\n[", json!({"a": "b"})),
        ("{a: b}, x", json!({"a": "b"})),
        (
            "a: yes\nb: 'yes'\nc: !!str yes\nd: 0755\ne: 0b11\nf: -0x1F\ng: 1_000\nh: 1.5e3",
            json!({"a": true, "b": "yes", "c": "yes", "d": 493, "e": 3, "f": -31, "g": 1000, "h": 1500.0}),
        ),
        (
            "- 2001-01-02\n- 1.2.3\n- ''\n-\n- |\n  a\n  b\n",
            json!(["2001-01-02", "1.2.3", "", null, "a\nb\n"]),
        ),
        // Keys are resolved like values and then become strings.
        (
            "yes: 1\n2: x\n010: w\n0x1F: z\n-0: q\n2001-01-02: d\n'on': t\n!!str 5: f\n",
            json!({"true": 1, "2": "x", "8": "w", "31": "z", "0": "q", "2001-01-02": "d", "on": "t", "5": "f"}),
        ),
        ("- &k yes\n- {*k : 1}", json!([true, {"true": 1}])),
        ("a: !foo 5\nb: !!str 5", json!({"a": "5", "b": "5"})),
        (
            "a: &a {x: 1, l: &l [2]}\nb: *a\nc: *l\ne: {<<: [*a, {z: 4}]}\n",
            json!({
                "a": {"x": 1, "l": [2]}, "b": {"x": 1, "l": [2]}, "c": [2], "e": {"x": 1, "l": [2], "z": 4},
            }),
        ),
        ("&k a: *k", json!({"a": "a"})),
        ("[&k b, {*k : 1}]", json!(["b", {"b": 1}])),
        ("{\"a\": [1, null, \"\\u00e4\"]}", json!({"a": [1, null, "ä"]})),
    ] {
        assert_eq!(unlimited(text), Ok(wanted), "{text}");
    }
}

#[test]
fn syntax_errors_have_their_position() {
    for (text, what) in [
        ("a: [", "line "),
        ("a: b\n c: d: e", "line 2"),
        ("a: &a [*a]", "line 1, column 8: an alias stands inside its own anchor"),
        ("a: *b", "line 1"),
        ("{[a]: b}", "a key must be text"),
        ("{~: b}", "a key must be text"),
        ("{1.5: b}", "a key must be text"),
        ("{18446744073709551615: b}", "a key must be text"),
        ("a: .inf", "`.inf` has no JSON"),
        ("a: !!int '5'", "a tag other than `!!str`"),
        ("{<<: 1}", "`<<` takes a mapping"),
    ] {
        match unlimited(text) {
            Err(Error::Syntax(observed)) => assert!(observed.contains(what), "{text}: {observed}"),
            other => panic!("{text}: {other:?}"),
        }
    }
}

#[test]
fn duplicate_keys_are_refused_or_the_last_wins() {
    let text = "a: 1\nb: 2\na: 3";
    assert_eq!(unlimited(text), Ok(json!({"a": 3, "b": 2})));
    assert_eq!(
        within(text, DuplicateKeys::Refused, u64::MAX),
        Err(Error::Syntax(
            "line 3, column 4: key `a` stands twice in one mapping".to_owned()
        ))
    );
    let merged = "{<<: {a: 1}, a: 2}";
    assert_eq!(within(merged, DuplicateKeys::Refused, u64::MAX), Ok(json!({"a": 2})));
    // As in go-yaml v2, the last one is used.
    let behind = "{a: 2, b: 3, <<: [{a: 1}, {a: 4, c: 5}]}";
    for duplicate_keys in [DuplicateKeys::Refused, DuplicateKeys::LastWins] {
        assert_eq!(
            within(behind, duplicate_keys, u64::MAX),
            Ok(json!({"a": 1, "b": 3, "c": 5}))
        );
    }
    assert_eq!(unlimited("{<<: {a: 1}, <<: {a: 2}}"), Ok(json!({"a": 2})));
    // SECURITY: which of the two Go uses is random.
    for text in ["{true: a, 'true': b}", "{'8': a, 010: b}", "{<<: {'true': a}, yes: b}"] {
        let error = unlimited(text).unwrap_err();
        assert!(
            matches!(&error, Error::Syntax(what) if what.contains("stands twice")),
            "{error:?}"
        );
    }
}

#[test]
fn the_heap_size_of_values_is_charged() {
    for text in ["a: [1, x, {}]\nb: ''\n", "- \n- {a: {b: c}}\n"] {
        let wanted = unlimited(text).unwrap();
        // A key is charged as the value it could be.
        let bytes = heap_size::of(&wanted) + 3 * heap_size::VALUE_BYTES;
        assert_eq!(within(text, DuplicateKeys::Refused, bytes), Ok(wanted), "{text}");
        let less = heap_size::of(&unlimited(text).unwrap()) - 1;
        assert!(
            matches!(within(text, DuplicateKeys::Refused, less), Err(Error::Limit(_))),
            "{text}"
        );
    }
}

/// SECURITY: a few lines can expand to gigabytes.
#[test]
fn aliases_stop_at_the_memory_limit() {
    let level = |name: &str, of: &str| format!("{name}: &{name} [{of}]\n");
    let mut laughs = level("a", "x, x, x, x, x, x, x, x, x, x");
    for (name, of) in ["b", "c", "d", "e", "f", "g", "h", "i"].iter().zip("abcdefgh".chars()) {
        laughs.push_str(&level(name, &vec![format!("*{of}"); 10].join(", ")));
    }
    let long = format!("a: &a {}\nb: [{}]", "x".repeat(10_000), "*a,".repeat(10_000));
    let members: Vec<String> = (0..1_000).map(|key| format!("k{key}: 1")).collect();
    let merged = format!("a: &a {{{}}}\nb: [{}]", members.join(", "), "{<<: *a},".repeat(1_000));
    for text in [laughs, long, merged] {
        assert!(text.len() < 100_000);
        match within(&text, DuplicateKeys::LastWins, 16 * 1024 * 1024) {
            Err(Error::Limit(_)) => {}
            // Argo CD refuses these itself.
            Err(Error::Syntax(what)) => assert!(what.contains("what aliases bring"), "{what}"),
            Ok(_) => panic!("{} bytes are read", text.len()),
        }
    }
    let few = "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n";
    assert_eq!(
        within(few, DuplicateKeys::LastWins, 10_000).unwrap()["c"][1][1],
        json!(["x", "x"])
    );
}

#[test]
fn small_values_without_aliases_stop_at_the_limit() {
    let nothing = "[~,~,~,~]\n---\n".to_owned();
    assert!(within(&nothing, DuplicateKeys::LastWins, 1_000).is_ok());
    let nothing = format!("[{}]", "~,".repeat(100_000));
    assert!(matches!(
        within(&nothing, DuplicateKeys::LastWins, 1_000_000),
        Err(Error::Limit(_))
    ));
}

#[test]
fn nesting_depth_is_limited() {
    let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    assert!(unlimited(&nested(MAX_NESTING - 1)).is_ok());
    assert!(matches!(unlimited(&nested(MAX_NESTING + 1)), Err(Error::Syntax(_))));
    let aliased = |levels: usize| {
        let anchored = format!("- &a {}\n", nested(MAX_NESTING / 2));
        format!("{anchored}- {}*a{}\n", "[".repeat(levels), "]".repeat(levels))
    };
    assert!(unlimited(&aliased(MAX_NESTING / 2 - 1)).is_ok());
    assert!(matches!(
        unlimited(&aliased(MAX_NESTING / 2 + 1)),
        Err(Error::Syntax(_))
    ));
}

/// SECURITY: found by `cargo xtask differential yaml`. A YAML 1.2 reader gives other values.
#[test]
fn values_match_argo_cd_where_yaml_1_2_differs() {
    for (text, wanted) in [
        ("a: |\n x", json!({"a": "x"})),
        ("a: >\n x", json!({"a": "x"})),
        ("a: |+\n x", json!({"a": "x"})),
        ("a: |+\n", json!({"a": ""})),
        ("a: |\n x\n", json!({"a": "x\n"})),
        ("a: .1_0", json!({"a": 0.1})),
        ("a: ._5", json!({"a": "._5"})),
        ("a: 0b+1\nb: 0b-1\nc: -0b+1", json!({"a": 1, "b": -1, "c": "-0b+1"})),
        // The name refers to the anchor that began last.
        ("[&x [&x b, *x], *x]", json!([["b", "b"], "b"])),
        ("a: &a [b]\na: *a", json!({"a": ["b"]})),
        ("\u{feff}a: b", json!({"a": "b"})),
        // U+2028 ends a line.
        ("a: b\u{2028}c: d", json!({"a": "b", "c": "d"})),
    ] {
        assert_eq!(unlimited(text), Ok(wanted), "{text:?}");
    }
}

/// SECURITY: Argo CD reads each of these differently, or refuses it.
#[test]
fn ambiguous_yaml_is_refused() {
    for (text, what) in [
        ("a: \"\\/\"", "the escape `\\/`"),
        ("[a?b]", "`?` in a text between brackets"),
        ("{a: http://x?y}", "`?` in a text between brackets"),
        ("{a:}", "found unexpected ':'"),
        ("%YAML 1.1\n---\na: b", "line 1: a directive"),
        ("a: b\u{85}c: d", "U+0085"),
        ("a: b\n\u{feff}c: d", "line 2: the character U+FEFF"),
        ("a: \u{7f}", "U+007F"),
        ("a: '\0'", "U+0000"),
        ("! 5", "a tag other than"),
        ("! <<: {a: b}", "a tag other than"),
        ("!x [a]", "a tag other than"),
        ("[!x,y]", "a tag with `,`"),
        ("[\"a\"!x,y]", "a tag with `,`"),
        ("!%ff a", "a tag with `,` or `%`"),
        ("a: |\n ", "blanks at the end"),
        ("a: &s [{b: c}]\nd: {<<: *s}", "`<<` takes a mapping"),
        ("\t", "line 1"),
        ("...", "line 1"),
        ("&&", "line 1"),
        ("\"a\\", "line 1"),
    ] {
        match unlimited(text) {
            Err(Error::Syntax(observed)) => assert!(observed.contains(what), "{text:?}: {observed}"),
            other => panic!("{text:?}: {other:?}"),
        }
    }
}

#[test]
fn common_punctuation_is_accepted() {
    let text = "a: Hi!, you\nb: 100%\nc: [x!, z]\nd: \"a?b\"\ne: a?b\nf: {g: 'x?y', h: 'a/b'}\n";
    let wanted = json!({
        "a": "Hi!, you", "b": "100%", "c": ["x!", "z"], "d": "a?b", "e": "a?b", "f": {"g": "x?y", "h": "a/b"},
    });
    assert_eq!(unlimited(text), Ok(wanted));
}
