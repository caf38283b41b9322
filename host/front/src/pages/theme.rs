//! The theme that somebody chose for the console's pages, in a cookie.

use http::HeaderMap;

use crate::pages::cookies;

/// The cookie of the theme. It is no secret.
pub const THEME_COOKIE: &str = "tollgate-theme";

/// Light or dark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Theme {
    /// That of the system.
    #[default]
    System,
    /// Dark text on a light ground.
    Light,
    /// Light text on a dark ground.
    Dark,
}

impl Theme {
    /// Every theme, in the order in which people are offered them.
    pub const ALL: [Self; 3] = [Self::System, Self::Light, Self::Dark];

    /// The theme of this name. Anything else is [`Theme::System`].
    pub fn parse(text: &str) -> Self {
        match text {
            "light" => Self::Light,
            "dark" => Self::Dark,
            _ => Self::System,
        }
    }

    /// The value of the cookie, and of `data-theme` of a page.
    pub fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }

    /// What people read.
    pub fn label(self) -> &'static str {
        match self {
            Self::System => "Auto",
            Self::Light => "Light",
            Self::Dark => "Dark",
        }
    }

    /// The one that the cookie of a request says.
    pub fn of(fields: &HeaderMap) -> Self {
        let found = cookies(fields).find(|(name, _)| *name == THEME_COOKIE);
        found.map_or(Self::System, |(_, theme)| Self::parse(theme))
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;
    use http::header::COOKIE;

    use super::Theme;

    #[test]
    fn a_cookie_says_the_theme_and_nothing_else() {
        for (cookie, theme) in [
            ("tollgate-theme=dark", Theme::Dark),
            ("a=b; tollgate-theme=light; c=d", Theme::Light),
            ("tollgate-theme=\"><script>", Theme::System),
            ("tollgate-themes=dark", Theme::System),
            ("x-tollgate-theme=dark", Theme::System),
        ] {
            let mut fields = HeaderMap::new();
            fields.insert(COOKIE, cookie.parse().unwrap());
            assert_eq!(Theme::of(&fields), theme, "{cookie}");
        }
        assert_eq!(Theme::of(&HeaderMap::new()), Theme::System);
    }
}
