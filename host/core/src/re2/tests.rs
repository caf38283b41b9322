use super::*;

fn check(expression: &str, text: &str, expected: bool) {
    let regex = compile(expression).unwrap_or_else(|error| panic!("{expression}: {error}"));
    assert_eq!(
        regex.is_match(text),
        expected,
        "`{expression}` on `{text}` as `{}`",
        regex.as_str()
    );
}

#[test]
fn searches_without_anchors() {
    check("applications", "applicationsets", true);
    check("applications", "application", false);
    check("^app$", "app", true);
    check("^app$", "apps", false);
    check("repositories", "write-repositories", true);
}

#[test]
fn follows_go_where_the_dialects_differ() {
    check(r"^\d+$", "12", true);
    check(r"^\d+$", "\u{0661}", false);
    check(r"^\w+$", "ä", false);
    check(r"^[\w-]+$", "a-b_1", true);
    check(r"^\Qa.b\E$", "a.b", true);
    check(r"^\Qa.b\E$", "axb", false);
    check("^a{,2}$", "a{,2}", true);
    check("^a{x$", "a{x", true);
    check("^a{2}$", "aa", true);
    check("^[[]$", "[", true);
    check("^[a&&b]+$", "&", true);
    check("^[]a]$", "]", true);
    check("^[[:alpha:]]+$", "abc", true);
    check("^[[:alpha:]]+$", "1", false);
    check(r"^\<a\>$", "<a>", true);
    check(r"\p{Greek}|app", "p/app", true);
    check(r"^\x{70}/$", "p/", true);
    check("^[[:^alpha:]]$", "1", true);
    check(r"^\101$", "A", true);
    check(r"^a\%b\ c$", "a%b c", true);
    check(r"^[\ \%]$", " ", true);
    check("^a{01}$", "a{01}", true);
    check("^a{01}$", "a", false);
    check("^a{2}?a*?b??$", "aaa", true);
}

/// Found by the differential test.
#[test]
fn groups_and_flags_are_those_of_go() {
    check("^a(?i)??B$", "b", true);
    check("^a(?i)??B$", "a", false);
    check("^a*(?i)+(?s){2}B$", "aaab", true);
    check("^(?UU)p+$", "pp", true);
    check("^(?i-i)p$", "P", false);
    check("^(?-ii:p)$", "P", false);
    check("^()a(?)*$", "aa", true);
    check("^(?P<1>a)(?<1>b)$", "ab", true);
    check("^(?i:A)b$", "ab", true);
    check("^(?i:A)b$", "aB", false);
}

#[test]
fn refuses_what_go_refuses() {
    for expression in [
        "*",
        "*/*",
        "[a",
        "(a",
        "a)",
        r"\1",
        r"\y",
        "a{1001}",
        "(?x)a",
        "a\\",
        "+",
        "p/**",
        "a++",
        "a???",
        "a*+",
        "a{2}{3}",
        "a*{2}",
        "(a{100}){11}",
        "((a{10}){11}){10}",
        "[[:alppha:]]",
        "[[:^alppha:]]",
        r"\p{Greek",
        r"(?<n\>p)",
        "(?<>p)",
        "(?P<n p)",
        "(?<=p)",
        "(?i-)p",
        "(?--i)p",
        "(?i",
        "(?i)*",
        "a|(?i)*",
        "a(?i)**",
        "a{40}(?i){40}",
    ] {
        assert!(compile(expression).is_err(), "{expression}");
    }
}
