//! Tests of what a string that a decision depends on may contain.

use super::super::go_template::GoTemplate;
use super::super::{AuthorizationImpact, Error};
use crate::MissingKey;

fn parsed(text: &str, impact: AuthorizationImpact) -> Result<(), Error> {
    GoTemplate::new(text, MissingKey::Default, impact).map(|_| ())
}

/// The error for a string that is refused.
fn refused(text: &str) -> String {
    match parsed(text, AuthorizationImpact::Direct) {
        Err(Error::Divergent { what, .. }) => what,
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn templates_that_both_engines_read_alike_are_accepted() {
    for text in [
        "plain",
        "{{ .name }}-{{.env}}",
        "{{- .name -}} x",
        "{{/* a comment */}}x{{- /* and another */ -}}\n y",
        "{{ .path.basename | normalize | trunc 30 | trimSuffix \"-\" }}",
        "{{ printf \"%s-%d%%\" .a (index .path.segments 2) }}",
        "{{ index .metadata.labels \"env/kind\" | default `raw \\x` }}",
        "{{ if and (eq .a \"b\") (ne .c \"d\") -}} x {{- else if .e }}y{{ else }}z{{ end }}",
        "{{ with .a }}{{ . }}{{ else with $.b }}{{ .c }}{{ end }}",
        "{{ range $i, $v := .list }}{{ if not $v }}{{ continue }}{{ end }}{{ $i }}{{ break }}{{ else }}none{{ end }}",
        "{{ $x := (dict \"a\" .b).a }}{{ $x = lower $x }}{{ $x }}{{ $ }}",
        "{{ dig \"a\" \"b\" \"none\" . | replace \"_\" \"-\" | slugify 20 false }}",
        "{{ slugify 20 true .a }}{{ 7 }}{{ -7 }}{{ true }}{{ list nil 1 }}{{ range until 3 }}{{ . }}{{ end }}",
        "{{ \"é\" }}{{ printf \"%5s|%-5s|%02d|%.3s\" .a .b .c .d }}{{ toYaml .a | nindent 4 }}",
        "{{\n\t.a\n}}{{ .a|lower }}{{ (.a) }}{{ ( .a ).b.c }}{{ $.a.b }}",
    ] {
        assert_eq!(parsed(text, AuthorizationImpact::Direct), Ok(()), "{text}");
    }
}

/// SECURITY: Go reads each of these differently, or may do so.
#[test]
fn templates_that_go_may_read_differently_are_refused() {
    for (text, wanted) in [
        // Tokens.
        ("{{ len \"\\xff\" }}", "an escape in a text"),
        ("{{ \"\\u00e9\" }}", "an escape in a text"),
        ("{{ \"\\101\" }}", "an escape in a text"),
        ("{{ \"a\nb\" }}", "a control character in a text"),
        ("{{ `a\rb` }}", "a control character in a text"),
        ("{{ 'a' }}", "within an action"),
        ("{{ 0x10 }}", "must be followed by a blank"),
        ("{{ 010 }}", "a number must be whole"),
        ("{{ 1_000 }}", "must be followed by a blank"),
        ("{{ 1.5 }}", "must be followed by a blank"),
        ("{{ 1e3 }}", "must be followed by a blank"),
        ("{{ 1234567890123456789 }}", "a number must be whole"),
        ("{{ -0 }}", "a number must be whole"),
        ("{{ .é }}", "must be followed by a blank"),
        ("{{ .a\u{a0}.b }}", "must be followed by a blank"),
        ("{{ \u{a0}.b }}", "within an action"),
        ("{{ lower.a }}", "must be followed by a blank"),
        ("{{ \"a\".b }}", "must be followed by a blank"),
        ("{{ lower(.a) }}", "must be followed by a blank"),
        ("{{ $x=1 }}", "must be followed by a blank"),
        ("{{ (.a)\"b\" }}", "must be followed by a blank"),
        ("{{{ .a }}", "within an action"),
        ("{{ .a", "must be followed by a blank"),
        ("{{ .a ", "is not closed"),
        ("{{ \"a", "is not closed"),
        ("{{ `a", "is not closed"),
        // Comments and blanks.
        ("a {{- /* */}} b", "a comment that trims on its left alone"),
        ("{{ /* */ }}", "within an action"),
        ("{{/* */ }}", "a comment must be"),
        ("{{-  /* */ -}}", "within an action"),
        ("{{/* ", "a comment must be"),
        ("a\u{a0} {{- .a }}", "blanks that `-` trims"),
        ("{{ .a -}} \u{2003}b", "blanks that `-` trims"),
        // Blocks.
        ("{{ define \"base\" }}{{ end }}", "`define`"),
        ("{{ template \"base\" }}", "`template`"),
        ("{{ block \"a\" . }}{{ end }}", "`block`"),
        ("{{ if .a }}", "`if` is not closed"),
        ("{{ end }}", "`end` closes nothing"),
        ("{{ if .a }}{{ else }}{{ else }}{{ end }}", "`else` belongs to nothing"),
        ("{{ if .a }}{{ else with .b }}{{ end }}", "`else with` within `if`"),
        ("{{ range .a }}{{ else if .b }}{{ end }}", "`else if` within `range`"),
        ("{{ range .a }}{{ else }}{{ break }}{{ end }}", "`break` outside"),
        ("{{ continue }}", "`continue` outside"),
        ("{{ end .a }}", "words behind `end`"),
        ("{{ .a end }}", "`end` within an action"),
        ("{{ if }}{{ end }}", "an action without a value"),
        ("{{ }}", "an action without a word"),
        // Pipelines.
        ("{{ .a | }}", "an action without a value"),
        ("{{ | .a }}", "nothing stands before `|`"),
        ("{{ .a | \"b\" }}", "is no function"),
        ("{{ (.a }}", "`(` is not closed"),
        ("{{ .a) }}", "`)` closes nothing"),
        ("{{ () }}", "nothing stands before `)`"),
        ("{{ $a, $b := .c }}", "where no variable is declared"),
        ("{{ $a $b := .c }}", "where no variable is declared"),
        ("{{ ($a := .c) }}", "where no variable is declared"),
        ("{{ $ := .c }}", "only a variable with a name"),
        ("{{ $a := .c }}{{ $a.b = .c }}", "only a variable with a name"),
        (
            "{{ $a := 1 }}{{ range $a = .b }}{{ end }}",
            "where no variable is declared",
        ),
        ("{{ $a }}", "the variable `$a` is not declared"),
        ("{{ $a = 1 }}", "the variable `$a` is not declared"),
        (
            "{{ if $a := .b }}{{ end }}{{ $a }}",
            "the variable `$a` is not declared",
        ),
        (
            "{{ range $a := .b }}{{ else }}{{ $a }}{{ end }}",
            "the variable `$a` is not declared",
        ),
        // Functions.
        ("{{ regexMatch \"^\\\\<$\" .a }}", "the function `regexMatch`"),
        ("{{ (fromJson .a).b }}", "the function `fromJson`"),
        ("{{ if false }}{{ float64 .a }}{{ end }}", "the function `float64`"),
        ("{{ .a | print (b64dec .b) }}", "the function `b64dec`"),
        ("{{ (semver .a).Major }}", "the function `semver`"),
        ("{{ set . \"a\" .b }}", "the function `set`"),
        ("{{ printf .a .b }}", "a `printf` whose format"),
        ("{{ .a | printf }}", "a `printf` whose format"),
        ("{{ printf \"%x\" .a }}", "a `printf` with another verb"),
        ("{{ printf \"%[1]s\" .a }}", "a `printf` with another verb"),
        ("{{ printf \"%*d\" 1 2 }}", "a `printf` with another verb"),
        ("{{ printf \"%+v\" .a }}", "a `printf` with another verb"),
        ("{{ printf \"%05s\" .a }}", "a `printf` with another verb"),
        ("{{ printf \"%100s\" .a }}", "a `printf` with another verb"),
        ("{{ printf \"a%\" }}", "a `printf` with another verb"),
    ] {
        let what = refused(text);
        assert!(what.contains(wanted), "{text}: {what}");
    }
    let deep = |open: &str, close: &str| format!("{}.a{}", open.repeat(60), close.repeat(60));
    assert!(refused(&format!("{{{{ {} }}}}", deep("(", ")"))).contains("parentheses nest"));
    assert!(refused(&deep("{{ if .a }}", "{{ end }}")).contains("blocks nest"));
}

/// SECURITY: strings that authorization does not depend on may contain anything, except what could
/// change the parameters of those it does depend on.
#[test]
fn other_templates_may_not_change_authorized_parameters() {
    for text in [
        "{{ regexReplaceAll \"[^a-z]\" .a \"-\" }}{{ now }}{{ len \"\\xff\" }}",
        "{{ define \"x\" }}{{ .a }}{{ end }}{{ template \"x\" . }}",
        "{{ $d := dict }}{{ $_ := set $d \"a\" \"b\" }}{{ $d.a }}",
        "offset {{ .offset }} applicationset {{ semver .a }}",
    ] {
        assert_eq!(parsed(text, AuthorizationImpact::Indirect), Ok(()), "{text}");
    }
    for text in [
        "{{ if eq (len \"\\xff\") 1 }}{{ $_ := set . \"p\" \"prod\" }}{{ end }}",
        "{{ if regexMatch \"a{1001}|.\" \"a\" }}{{ $_ := merge . (dict \"q\" \"x\") }}{{ end }}",
        "{{ if eq (int 1.0) 1 }}{{ $_ := sortAlpha .path.segments }}{{ end }}",
        "{{- /* set */}} b {{ .a }}",
    ] {
        let outcome = parsed(text, AuthorizationImpact::Indirect);
        assert!(matches!(outcome, Err(Error::Divergent { .. })), "{text}: {outcome:?}");
        assert_eq!(parsed(text, AuthorizationImpact::None), Ok(()), "{text}");
    }
}
