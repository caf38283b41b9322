//! Compiles a policy source to an index of rows, and reports all findings about it.
//!
//! Security: a text with a broken line yields no policy, and a project with a broken line
//! contributes no role.

use std::collections::HashSet;
use std::sync::Arc;

use super::index::Table;
use super::matcher::{Dialect, Matcher, PatternId};
use super::read::{Grant, Lines, Row, builtin_text, is_literal, project_lines, undefined};
use super::{Builtin, Effect, MatchMode, PolicySource, ProjectId, Rbac, Rule, SubjectId};
use tollgate_config::RbacSemantics;
use tollgate_core::diagnostic::{Diagnostic, Loaded, Location};

/// Who wrote a text, which decides whether findings about its patterns are reported.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Author {
    Operator,
    /// The author of a project, whose patterns are judged before its roles are added.
    Project,
    Argocd,
}

impl Rbac {
    /// Compiles a policy.
    ///
    /// A policy is refused if a line is broken or a pattern exceeds the bounds of
    /// [`tollgate_core::glob`]; under strict semantics also for an effect or a pattern that can
    /// never apply. In a project the same mistakes drop all of its roles, with a warning. Every
    /// finding is reported at once.
    pub fn compile(source: &PolicySource) -> Loaded<Self> {
        let mut build = RbacBuilder::new(source);
        if let Some(text) = builtin_text(&source.builtin) {
            let mut lines = Lines::new(source.semantics);
            lines.read(&text.value, &text.location);
            let (mut author, mut dialect) = (Author::Operator, build.dialect);
            if source.builtin == Builtin::Argocd {
                author = Author::Argocd;
                // Argo CD's own text has a row without effect, which the operator cannot fix.
                lines.diagnostics.clear();
                if source.semantics == RbacSemantics::Strict {
                    dialect = Dialect::ExactGlob;
                }
            }
            build.lines(lines, None, dialect, author);
            if (author, dialect) == (Author::Argocd, Dialect::Regex) {
                build.diagnostics.push(
                    Diagnostic::warning(None, "`policy.matchMode` is `regex`: the built-in roles allow nothing")
                        .with_hint("their patterns `*` and `*/*` are no regular expressions; write own roles"),
                );
            }
        }
        let mut lines = Lines::new(source.semantics);
        for text in &source.texts {
            lines.read(&text.value, &text.location);
        }
        let grants = lines.grants.clone();
        build.lines(lines, None, build.dialect, Author::Operator);
        for (number, (name, project)) in (0..).zip(&source.projects) {
            let id = ProjectId(number);
            build.rbac.projects.insert(name.as_str().into(), id);
            build.project_names.push(name.as_str().into());
            let mut lines = project_lines(project, source.semantics);
            // Before any row is added: a pattern that cannot be used drops all roles of the project, as a broken line
            // does.
            for row in &lines.rows {
                let patterns = build.patterns(row, build.dialect);
                let findings = build.check_patterns(row, patterns, Author::Operator);
                lines.diagnostics.extend(findings);
            }
            lines.drop_if_broken(project);
            build.lines(lines, Some(id), build.dialect, Author::Project);
        }
        build.finish(&grants, source.default_role_location.as_ref())
    }
}

struct RbacBuilder {
    rbac: Rbac,
    /// By [`ProjectId`].
    project_names: Vec<Arc<str>>,
    dialect: Dialect,
    diagnostics: Vec<Diagnostic>,
}

impl RbacBuilder {
    fn new(source: &PolicySource) -> Self {
        let dialect = match (source.match_mode, source.semantics) {
            (MatchMode::Regex, _) => Dialect::Regex,
            (MatchMode::Glob, RbacSemantics::Argocd) => Dialect::Glob,
            (MatchMode::Glob, RbacSemantics::Strict) => Dialect::ExactGlob,
        };
        let rbac = Rbac {
            semantics: source.semantics,
            scopes: source.scopes.clone(),
            default_role: source.default_role.clone(),
            accounts: source.accounts.clone(),
            ..Rbac::default()
        };
        Self {
            rbac,
            project_names: Vec::new(),
            dialect,
            diagnostics: Vec::new(),
        }
    }

    fn subject(&mut self, name: &str) -> SubjectId {
        if let Some(id) = self.rbac.subjects.get(name) {
            return *id;
        }
        let id = SubjectId(number(self.rbac.names.len()));
        let name: Arc<str> = name.into();
        self.rbac.names.push(name.clone());
        self.rbac.subjects.insert(name, id);
        id
    }

    fn lines(&mut self, lines: Lines, project: Option<ProjectId>, dialect: Dialect, author: Author) {
        self.diagnostics.extend(lines.diagnostics);
        for grant in lines.grants {
            self.grant(&grant, project);
        }
        for row in lines.rows {
            self.row(row, project, dialect, author);
        }
    }

    fn grant(&mut self, grant: &Grant, project: Option<ProjectId>) {
        let (member, role) = (self.subject(&grant.member), self.subject(&grant.role));
        self.rbac.roles_of.entry((project, member)).or_default().push(role);
        self.mention(member, project);
    }

    fn mention(&mut self, subject: SubjectId, project: Option<ProjectId>) {
        if let Some(project) = project {
            let mentions = self.rbac.mentions.entry(subject).or_default();
            // Projects are read one after the other, so a repeated one is the last.
            if mentions.last() != Some(&project) {
                mentions.push(project);
            }
        }
    }

    fn patterns(&mut self, row: &Row, dialect: Dialect) -> [PatternId; 3] {
        let [_, resource, action, object] = &row.fields;
        [resource, action, object].map(|pattern| self.rbac.pool.intern(dialect, pattern))
    }

    fn row(&mut self, row: Row, project: Option<ProjectId>, dialect: Dialect, author: Author) {
        let patterns = self.patterns(&row, dialect);
        if author != Author::Project {
            let findings = self.check_patterns(&row, patterns, author);
            self.diagnostics.extend(findings);
        }
        let [subject, resource, action, object] = row.fields;
        let id = self.subject(&subject);
        self.mention(id, project);
        let number = number(self.rbac.rules.len());
        let rule = Rule {
            subject: self.rbac.names.get(id.0 as usize).cloned().unwrap_or_default(),
            resource: resource.into(),
            action: action.into(),
            object: object.into(),
            effect: row.effect,
            location: row.location,
            text: row.text,
            project: project.and_then(|id| self.project_names.get(id.0 as usize).cloned()),
            patterns,
        };
        self.insert(number, &rule, (project, id));
        self.rbac.rules.push(rule);
    }

    fn check_patterns(&self, rule: &Row, patterns: [PatternId; 3], author: Author) -> Vec<Diagnostic> {
        let mut findings = Vec::new();
        for (field, id) in ["resource", "action", "object"].into_iter().zip(patterns) {
            let finding = match self.rbac.pool.matcher(id) {
                Some(Matcher::OutOfBounds(what)) => {
                    Diagnostic::error(rule.location.clone(), format!("{field}: {what}"))
                }
                Some(Matcher::BrokenGlob(what) | Matcher::BrokenRegex(what)) if author != Author::Argocd => {
                    let message = format!("{field} pattern never matches: {what}");
                    match self.rbac.semantics {
                        RbacSemantics::Argocd => Diagnostic::warning(rule.location.clone(), message),
                        RbacSemantics::Strict => Diagnostic::error(rule.location.clone(), message),
                    }
                    .with_hint(match rule.effect {
                        Effect::Deny => "what it should deny is not denied",
                        Effect::Allow | Effect::Inert => "the row allows nothing",
                    })
                }
                Some(Matcher::BrokenGlob(_) | Matcher::BrokenRegex(_) | Matcher::Glob(_) | Matcher::Regex(_))
                | None => {
                    continue;
                }
            };
            findings.push(finding);
        }
        if author != Author::Argocd {
            findings.extend(self.check_object(rule));
        }
        findings
    }

    /// The object of an Application is `project/name`, and a name alone matches none.
    fn check_object(&self, rule: &Row) -> Option<Diagnostic> {
        let [_, resource, _, object] = &rule.fields;
        let is_in_project = matches!(resource.as_str(), "applications" | "applicationsets" | "logs" | "exec");
        // A regular expression matches a part of the object, too.
        let is_whole = self.dialect != Dialect::Regex && is_literal(object);
        (is_in_project && is_whole && !object.contains('/')).then(|| {
            let object = super::line::shorten(object);
            let message = format!("object `{object}` has no project and name, so the row does nothing");
            let hint = format!("write `{object}/*` for all in that project");
            Diagnostic::warning(rule.location.clone(), message).with_hint(hint)
        })
    }

    fn insert(&mut self, row: u32, rule: &Rule, key: (Option<ProjectId>, SubjectId)) {
        let rbac = &mut self.rbac;
        let next = number(rbac.tables.len());
        let table = *rbac.table_of.entry(key).or_insert(next);
        if table == next {
            rbac.tables.push(Table::default());
        }
        let Some(table) = rbac.tables.get_mut(table as usize) else {
            return;
        };
        let [resource, action, object] = rule.patterns;
        let Some(leaf) = table
            .entry(resource, &rbac.pool, row)
            .and_then(|actions| actions.entry(action, &rbac.pool, row))
            .and_then(|objects| objects.entry(object, &rbac.pool, row))
        else {
            return;
        };
        // Rows are added in order, so the first of each effect stays.
        match rule.effect {
            Effect::Allow => leaf.allow.get_or_insert(row),
            Effect::Deny => leaf.deny.get_or_insert(row),
            Effect::Inert => return,
        };
        leaf.rows.push(row);
    }

    fn finish(mut self, grants: &[Grant], default_role: Option<&Location>) -> Loaded<Rbac> {
        let subjects: HashSet<&str> = self.rbac.rules.iter().map(|rule| &*rule.subject).collect();
        for grant in undefined(grants, &subjects) {
            let message = format!("role `{}` has no rows", super::line::shorten(&grant.role));
            self.diagnostics
                .push(Diagnostic::warning(grant.location.clone(), message).with_hint("its holders gain nothing by it"));
        }
        let role = &self.rbac.default_role;
        if !role.is_empty() && !subjects.contains(role.as_str()) && !self.rbac.subjects.contains_key(role.as_str()) {
            let role = super::line::shorten(role);
            let message = format!("`policy.default` is `{role}`, which no row names");
            self.diagnostics
                .push(Diagnostic::warning(default_role.cloned(), message).with_hint("nobody gains anything by it"));
        }
        self.rbac.pool.seal();
        self.rbac.rules.shrink_to_fit();
        Loaded::new(self.rbac, self.diagnostics)
    }
}

/// Saturates; policies have fewer rows than `u32` can count, as a ConfigMap is at most 1 MiB.
fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}
