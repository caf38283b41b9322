use clap::Parser as _;

use super::qualified;

#[derive(Debug, clap::Parser)]
struct Line {
    #[command(subcommand)]
    command: super::Command,
}

#[test]
fn a_namespace_in_the_name_overrides_the_option() {
    assert_eq!(qualified("a", None), (None, "a"));
    assert_eq!(qualified("a", Some("n")), (Some("n"), "a"));
    assert_eq!(qualified("own/a", Some("n")), (Some("own"), "a"));
}

#[test]
fn only_valid_command_lines_are_parsed() {
    for line in [
        "appset create a.yaml b.yaml --upsert --dry-run -o json --color never",
        "appset apply - --deletions 70 -N team",
        "appset update a.yaml",
        "appset delete team/a b -y --cascade orphan",
        "appset list -p a -p b -l x=y -N team -o name",
        "appset get a -o yaml",
        "appset generate - -o yaml",
    ] {
        let read = Line::try_parse_from(line.split(' '));
        assert!(read.is_ok(), "{line}: {read:?}");
    }
    for line in [
        "appset create",
        "appset delete",
        "appset delete a --cascade foreground",
        "appset generate a b",
        "appset list -o table",
    ] {
        assert!(Line::try_parse_from(line.split(' ')).is_err(), "{line}");
    }
}
