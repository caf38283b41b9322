//! Reads a page whose commands run, and compares what they print with what the page shows.
//!
//! - A block of kind `sh` is run. It must succeed; one of kind `sh fails` must fail.
//! - A block of kind `text` is what the block before it prints, standard error included. In it `…`
//!   stands for any text within a line, and a line of nothing else for any number of lines.
//! - There are no blocks of other kinds, so that nothing on the page is unproven.

/// Stands for what differs from run to run.
const ANYTHING: &str = "…";

/// How a block ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Succeeds,
    Fails,
}

/// A block of commands.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// Line of the page where it starts, from 1.
    pub(super) line: usize,
    pub(super) commands: String,
    pub(super) end: End,
    /// What the page shows as its output.
    pub(super) shown: Option<String>,
}

/// The steps of a page, in order.
///
/// # Panics
/// If the page has a block of another kind, or an output without commands.
pub(super) fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut lines = page.lines().zip(1..);
    while let Some((fence, line)) = lines.next() {
        let Some(kind) = fence.strip_prefix("```") else {
            assert!(
                !fence.trim_start().starts_with("```"),
                "line {line}: a block is indented"
            );
            continue;
        };
        let mut block = String::new();
        loop {
            let (text, _) = lines
                .next()
                .unwrap_or_else(|| panic!("line {line}: the block does not end"));
            if text == "```" {
                break;
            }
            block.push_str(text);
            block.push('\n');
        }
        let end = match kind {
            "sh" => End::Succeeds,
            "sh fails" => End::Fails,
            "text" => {
                let step = steps.last_mut().filter(|step| step.shown.is_none());
                step.unwrap_or_else(|| panic!("line {line}: this is no output of a block"))
                    .shown = Some(block);
                continue;
            }
            other => panic!("line {line}: a block of kind `{other}` does not run"),
        };
        steps.push(Step {
            line,
            commands: block,
            end,
            shown: None,
        });
    }
    steps
}

/// Whether an output is what the page shows.
pub(super) fn matches(shown: &str, output: &str) -> bool {
    let lines = |text| str::lines(text).map(str::trim_end).collect::<Vec<_>>();
    are_lines_matching(&lines(shown.trim_end()), &lines(output.trim_end()))
}

fn are_lines_matching(shown: &[&str], output: &[&str]) -> bool {
    match shown {
        [] => output.is_empty(),
        [ANYTHING, rest @ ..] => (0..=output.len()).any(|skipped| are_lines_matching(rest, &output[skipped..])),
        [line, rest @ ..] => match output {
            [printed, others @ ..] => is_line_matching(line, printed) && are_lines_matching(rest, others),
            [] => false,
        },
    }
}

fn is_line_matching(shown: &str, printed: &str) -> bool {
    match shown.split_once(ANYTHING) {
        None => shown == printed,
        Some((before, after)) => printed.strip_prefix(before).is_some_and(|rest| {
            let mut starts = rest.char_indices().map(|(at, _)| at).chain([rest.len()]);
            starts.any(|at| rest.get(at..).is_some_and(|tail| is_line_matching(after, tail)))
        }),
    }
}

#[test]
fn an_output_matches_only_where_the_page_leaves_something_out() {
    for (shown, output) in [
        ("a\nb\n", "a\nb"),
        ("a …\n", "a 1"),
        ("a … b … c", "a 1 b b 2 c"),
        ("…", ""),
        ("…\nb", "1\n2\nb"),
        ("a\n…\nd\n", "a\nb\nc\nd\n"),
        ("a\n…", "a"),
        // What the commands themselves leave out.
        ("-  token: …", "-  token: …"),
    ] {
        assert!(matches(shown, output), "{shown:?} {output:?}");
    }
    for (shown, output) in [
        ("", "a"),
        ("a\nb", "a"),
        ("a", "a\nb"),
        ("a …", "b 1"),
        ("a … b", "a 1 c"),
        ("…\nb", "1\n2"),
        ("a\n…\nd", "a\nb\nc"),
        ("yes", "no"),
    ] {
        assert!(!matches(shown, output), "{shown:?} {output:?}");
    }
}

#[test]
fn the_blocks_of_a_page_are_its_steps() {
    let page = "# Title\n\n```sh\na\nb\n```\n\nIt prints:\n\n```text\n1\n```\n\n```sh fails\nc\n```\n";
    let step = |line, commands: &str, end, shown: Option<&str>| Step {
        line,
        commands: commands.to_owned(),
        end,
        shown: shown.map(str::to_owned),
    };
    assert_eq!(
        steps(page),
        [
            step(3, "a\nb\n", End::Succeeds, Some("1\n")),
            step(14, "c\n", End::Fails, None)
        ]
    );
    for refused in [
        "```bash\na\n```\n",
        "```text\n1\n```\n",
        "```sh\na\n",
        "- x\n  ```sh\n  a\n  ```\n",
        "```sh\na\n```\n```text\n1\n```\n```text\n2\n```\n",
    ] {
        assert!(std::panic::catch_unwind(|| steps(refused)).is_err(), "{refused}");
    }
}
