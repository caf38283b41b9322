//! Tests with the patterns and errors of the library's own tests, and with hostile patterns.

use std::time::{Duration, Instant};

use super::*;

fn check(pattern: &str, text: &str, separators: &str, expected: bool) {
    let separators: Vec<char> = separators.chars().collect();
    let compiled = Pattern::compile(pattern, &separators).unwrap_or_else(|error| panic!("`{pattern}`: {error}"));
    assert_eq!(compiled.matches(text), expected, "`{pattern}` on `{text}`");
}

#[test]
fn stars_and_question_marks_stop_at_separators() {
    for (pattern, text, separators, expected) in [
        ("", "", "", true),
        ("", "b", "", false),
        ("*ä", "åä", "", true),
        ("?ä?", "xäy", "", true),
        ("a.**", "a.b.c", ".", true),
        ("a.*", "a.b.c", ".", false),
        ("a.?.?", "a.b.c", ".", true),
        ("?at", "fat", "f", false),
        ("*", "a.b", ".", false),
        ("*.*.*", "a.b.c", ".", true),
        ("*.*", "a.b.c", ".", false),
        ("**.c", "a.b.c", ".", true),
        ("***", "a.b.c", ".", true),
        ("**is**a***test*", "this is a test", "", true),
        ("[!a]*", "this is a test3", "", true),
        ("*/app", "proj/ns/app", "", true),
        ("*/app", "proj/ns/app2", "", false),
        ("delete/*/kind/*", "delete/g/K/kind/name", "", true),
    ] {
        check(pattern, text, separators, expected);
    }
}

#[test]
fn alternatives_nest_and_may_stay_unclosed() {
    for (pattern, text, expected) in [
        ("{abc,abcd}a", "abcda", true),
        ("{a,ab}{bc,f}", "abc", true),
        ("{*,**}{a,b}", "ab", true),
        ("{*,**}{a,b}", "ac", false),
        ("{a,{b,c}d}e", "cde", true),
        ("{a,{b,c}d}e", "ce", false),
        ("{a,b", "b", true),
        ("x{", "x", true),
        ("a,b}", "a,b}", true),
        ("x{a,}y", "xy", true),
        ("{a\\,b,c}", "a,b", true),
        ("{a\\,b,c}", "a", false),
        ("[a,]", ",", true),
    ] {
        check(pattern, text, "", expected);
    }
    check("{*.google.*,yandex.*}", "www.google.com", ".", true);
    check("{*.google.*,yandex.*}", "www.yandex.com", ".", false);
}

#[test]
fn classes_are_one_list_or_one_range() {
    for (pattern, text, expected) in [
        ("[a-c]", "b", true),
        ("[a-c]", "d", false),
        ("[!a-c]", "d", true),
        ("[!a-c]", "b", false),
        ("[ab-]", "-", true),
        ("[!!]", "!", false),
        ("[\\]]", "]", true),
        ("[日-語]", "本", true),
        ("a]b", "a]b", true),
        ("\\[a\\]", "[a]", true),
    ] {
        check(pattern, text, "", expected);
    }
    check("[!a]", "/", "/", true);
}

/// Found by the differential test: at a NUL the library ends the pattern, or only the literal
/// before it, or matches nothing next to a letter outside ASCII.
#[test]
fn patterns_with_nul_are_refused() {
    for pattern in ["a\0c", "*\0", "\0", "{a,b\0}", "[a\0]", "\\\0"] {
        let error = Pattern::compile(pattern, &[]).map(drop).expect_err(pattern);
        assert_eq!(error, Error::Nul, "{pattern:?}");
        assert!(error.is_gateway_limit(), "{pattern:?}");
    }
    check("a*c", "a\0c", "", true);
}

/// Found by the differential test.
#[test]
fn three_stars_are_a_double_and_a_single_star_with_separators() {
    check("/a***app", "/app", "", true);
    check("/a***app", "/app", "/", false);
    check("/a**app", "/app", "/", true);
    check("/a****app", "/app", "/", true);
    check("/a***app", "/a/b/app", "/", true);
}

#[test]
fn syntax_errors_have_the_texts_of_the_library() {
    for (pattern, words) in [
        ("e[[a*", "unexpected end of input"),
        ("[", "unexpected end of input"),
        ("[a", "unexpected end of input"),
        ("[!", "unexpected end of input"),
        ("[a-", "unexpected end of input"),
        ("[]", "could not parse range"),
        ("[!]", "could not parse range"),
        ("[a-zA-Z]", "expected close range character"),
        ("[z-a]", "hi character 'a' should be greater than lo 'z'"),
        ("a\u{fffd}", "could not read rune"),
    ] {
        let error = Pattern::compile(pattern, &[]).map(drop).expect_err(pattern);
        assert_eq!(error.to_string(), words, "{pattern}");
        assert!(!error.is_gateway_limit(), "{pattern}");
    }
}

#[test]
fn exceeded_limits_are_not_syntax_errors() {
    let long = Pattern::compile(&"a".repeat(MAX_PATTERN_BYTES + 1), &[]).map(drop);
    assert_eq!(long, Err(Error::TooLong(MAX_PATTERN_BYTES + 1)));
    let deep = Pattern::compile(&"{".repeat(MAX_DEPTH + 1), &[]).map(drop);
    assert_eq!(deep, Err(Error::TooDeep));
    assert!(long.is_err_and(|error| error.is_gateway_limit()) && deep.is_err_and(|error| error.is_gateway_limit()));
    assert!(Pattern::compile(&"{".repeat(MAX_DEPTH), &[]).is_ok());
}

#[test]
fn prefix_and_suffix_overlap_only_in_library_mode() {
    let compat = Pattern::compile("prod/*/x", &[]).unwrap();
    let exact = Pattern::compile_exact("prod/*/x", &[]).unwrap();
    assert!(compat.matches("prod/x") && !exact.matches("prod/x"));
    assert!(compat.matches("prod/ns/x") && exact.matches("prod/ns/x"));
    assert!(exact.matches("prod//x"));
}

#[test]
fn hostile_patterns_take_bounded_time() {
    let text = "a".repeat(2_000);
    let patterns = [
        format!("{}b", "*a".repeat(200)),
        format!("{}b", "?*".repeat(200)),
        format!("{}b", "{a,*a}".repeat(200)),
        format!("{}*b", "{a,aa,a*}".repeat(100)),
        format!("{}{}b", "{*,".repeat(MAX_DEPTH), "a}".repeat(MAX_DEPTH)),
        format!("*{}b", "a".repeat(2000)),
    ];
    let start = Instant::now();
    for pattern in &patterns {
        let compiled = Pattern::compile(pattern, &[]).unwrap();
        assert!(!compiled.matches(&text), "{pattern}");
        let separated = Pattern::compile(pattern, &['/']).unwrap();
        assert!(!separated.matches(&text), "{pattern}");
    }
    // Exponential time would take years; this bound only distinguishes the two.
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
}

/// The sequence matcher and the automaton must agree.
#[test]
fn fast_and_general_matchers_agree() {
    let mut seed = 7_u64;
    let mut next = |bound: usize| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        usize::try_from(seed >> 33).unwrap() % bound
    };
    for _ in 0..20_000 {
        let pattern: String = (0..next(8))
            .map(|_| ["a", "b", "*", "?", "[!a]", "**"][next(6)])
            .collect();
        let text: String = (0..next(9)).map(|_| ["a", "b", "c"][next(3)]).collect();
        let nodes = parse::parse(&pattern, false).unwrap();
        let general = Program::new(&nodes, &[]).matches(&text);
        let exact = Pattern::compile_exact(&pattern, &[]).unwrap();
        assert_eq!(exact.matches(&text), general, "`{pattern}` on `{text}`");
    }
}

#[test]
fn quoted_text_is_a_literal_pattern() {
    for text in ["[foo*]", "{foo*}", "*?\\[]{}", "plain", "a,b", ""] {
        let pattern = Pattern::compile(&quote_meta(text), &[]).unwrap();
        assert_eq!(pattern.literal(), Some(text));
        assert!(pattern.matches(text) && !pattern.matches(&format!("{text}x")));
    }
}

#[test]
fn lists_follow_their_mode() {
    let list = |entries: &[&str]| entries.iter().map(|entry| (*entry).to_owned()).collect::<Vec<_>>();
    assert!(matches_list(
        ListMode::Regexp,
        &list(&["/^((?!disallowed).)*$/"]),
        "allowed"
    ));
    assert!(!matches_list(
        ListMode::Regexp,
        &list(&["/^((?!disallowed).)*$/"]),
        "disallowed"
    ));
    assert!(!matches_list(ListMode::Glob, &list(&["/^a/"]), "abc"));
    assert!(matches_list(ListMode::Regexp, &list(&["te*", "/"]), "test"));
    assert!(!matches_list(ListMode::Regexp, &list(&["/(/", "["]), "test"));
    // `//` is not an empty expression, which would match everything.
    assert!(!matches_list(ListMode::Regexp, &list(&["//"]), "test"));
    assert!(matches_list(ListMode::Regexp, &list(&["//"]), "//"));
    assert!(!matches_list(ListMode::Exact, &list(&["te*"]), "test"));
    assert!(!namespace_enabled("b", "a", &[]) && namespace_enabled("a", "a", &[]));
    // Catastrophic backtracking ends at the limit, without a match.
    assert!(!matches_list(
        ListMode::Regexp,
        &list(&["/^(a+)+(?=b)$/"]),
        &"a".repeat(64)
    ));
}

#[test]
fn sources_are_compared_normalized() {
    let permitted = |entries: &[&str], url: &str| {
        source_permitted(
            &entries.iter().map(|entry| (*entry).to_owned()).collect::<Vec<_>>(),
            url,
        )
    };
    assert!(permitted(
        &["https://GitHub.com/Org/*"],
        "https://github.com/org/repo.git"
    ));
    assert!(permitted(&["git@github.com:org/*"], "ssh://git@github.com/org/repo"));
    assert!(permitted(
        &["ssh://git@GITHUB.com:argoproj/test"],
        "ssh://git@github.com:argoproj/test"
    ));
    assert!(!permitted(
        &["ssh://git@github.com:argoproj/test"],
        "ssh://git@github.com:argoproj/other"
    ));
    assert!(!permitted(
        &["!ssh://git@GITHUB.com:argoproj/test", "*"],
        "ssh://git@github.com:argoproj/test"
    ));
    assert!(!permitted(
        &["https://gitlab.com/group/*"],
        "https://gitlab.com/group/repo/owner"
    ));
    assert!(permitted(
        &["https://gitlab.com/group/**"],
        "https://gitlab.com/group/repo/owner"
    ));
    assert!(!permitted(&["!https://github.com/a/*"], "https://github.com/a/b"));
    // A list with only negations permits everything that none of them forbids.
    assert!(permitted(&["!https://github.com/a/*"], "https://github.com/b/b"));
    assert!(!permitted(&[], "https://github.com/a/b"));
}

#[test]
fn witnesses_match_their_pattern_and_common_ones_match_both() {
    for pattern in ["p/*", "*/app", "a*b*c", "{x,y}/*", "[!a]?", "prod/*/x", "**"] {
        let pattern = Pattern::compile(pattern, &[]).unwrap();
        assert!(!pattern.witnesses().is_empty(), "{pattern:?}");
        assert!(
            pattern.witnesses().iter().all(|text| pattern.matches(text)),
            "{pattern:?}"
        );
    }
    let meet = |one: &str, two: &str| {
        let (one, two) = (Pattern::compile(one, &[]).unwrap(), Pattern::compile(two, &[]).unwrap());
        let text = one.common_witness(&two)?;
        assert!(one.matches(&text) && two.matches(&text), "{one:?} {two:?} {text}");
        Some(text)
    };
    assert!(meet("prod/*", "*-db").is_some());
    assert!(meet("p/a*", "p/*b").is_some());
    assert!(meet("*a?c", "b*").is_some());
    assert!(meet("prod/*", "dev/*").is_none());
    assert!(meet("[a-c]x", "[d-f]x").is_none());
    assert!(meet("{a,b}*", "{b,c}d").is_some());
}

/// Characters beside the surrogates, which are none, and at both ends of Unicode are different as well.
#[test]
fn inclusion_holds_for_every_character_at_the_border_of_a_range() {
    let borders = [
        '\0',
        '\u{1}',
        '\u{d7fe}',
        '\u{d7ff}',
        '\u{e000}',
        '\u{e001}',
        '\u{10fffe}',
        char::MAX,
    ];
    let mut patterns: Vec<String> = vec!["?".to_owned()];
    // A pattern cannot contain NUL.
    let listed = &borders[1..];
    for (at, low) in listed.iter().enumerate() {
        for high in &listed[at..] {
            patterns.extend([format!("[{low}-{high}]"), format!("[!{low}-{high}]")]);
        }
    }
    let patterns: Vec<Pattern> = patterns
        .iter()
        .map(|text| Pattern::compile(text, &[]).unwrap())
        .collect();
    let mut included = 0;
    for wide in &patterns {
        for narrow in &patterns {
            let mut shared = borders
                .map(String::from)
                .into_iter()
                .filter(|text| narrow.matches(text));
            let is_whole = shared.all(|text| wide.matches(&text));
            if wide.includes(narrow) {
                assert!(is_whole, "`{}` includes `{}`", wide.source(), narrow.source());
                included += 1;
            }
        }
    }
    assert!(included > patterns.len(), "{included}");
}
