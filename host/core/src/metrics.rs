//! Declares metrics, with the name and help of each beside its field.

/// A struct of metrics of `prometheus_client`, which the calling crate must have, with `Default` and `add_to`,
/// which adds all of them to a registry.
///
/// An entry is a field, its type, a value unless the type's default will do, a name, a former name behind `was` if the
/// same series also has that one for a release, a unit if it has one, and the help, which is also the field's doc. Those
/// behind `and` are structs of metrics in their turn.
#[macro_export]
macro_rules! metrics {
    (
        $(#[$attribute:meta])*
        $visibility:vis struct $name:ident {
            $($field_visibility:vis $field:ident: $type:ty $(= $made:expr)?,
                $metric:literal $(was $former:literal)? $(in $unit:expr)?, $help:literal;)*
        } $(and {
            $($(#[$part_attribute:meta])* $part_visibility:vis $part:ident: $part_type:ty;)*
        })?
    ) => {
        $(#[$attribute])*
        $visibility struct $name {
            $(#[doc = $help] $field_visibility $field: $type,)*
            $($($(#[$part_attribute])* $part_visibility $part: $part_type,)*)?
        }

        impl Default for $name {
            fn default() -> Self {
                Self {
                    $($field: $crate::metrics!(@made $($made)?),)*
                    $($($part: Default::default(),)*)?
                }
            }
        }

        impl $name {
            /// Adds every metric to a registry.
            $visibility fn add_to(&self, registry: &mut ::prometheus_client::registry::Registry) {
                $(
                    $crate::metrics!(@add registry, self.$field, $metric, $help $(, $unit)?);
                    $($crate::metrics!(@former registry, self.$field, $metric, $former);)?
                )*
                $($(self.$part.add_to(registry);)*)?
            }
        }
    };
    (@made) => { Default::default() };
    (@made $made:expr) => { $made };
    (@add $registry:ident, $value:expr, $metric:literal, $help:literal) => {
        $registry.register($metric, $help, $value.clone())
    };
    (@add $registry:ident, $value:expr, $metric:literal, $help:literal, $unit:expr) => {
        $registry.register_with_unit($metric, $help, $unit, $value.clone())
    };
    (@former $registry:ident, $value:expr, $metric:literal, $former:literal) => {{
        let kind = ::prometheus_client::encoding::EncodeMetric::metric_type(&$value);
        // The text has it at the end of the name.
        let suffix = match matches!(kind, ::prometheus_client::metrics::MetricType::Counter) {
            true => "_total",
            false => "",
        };
        let help = format!("Deprecated: use `{}{suffix}`", $metric);
        $registry.register($former, help, $value.clone())
    }};
}
