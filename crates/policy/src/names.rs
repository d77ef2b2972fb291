//! What the settings that have a name for each value have in common.

/// How a type is read and written by its `ALL` and `name`, and the error for a name that is none.
macro_rules! named {
    ($type:ident, $(#[$about:meta])* $unknown:ident: $told:literal) => {
        impl core::fmt::Display for $type {
            fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                formatter.write_str(self.name())
            }
        }

        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct $unknown;

        impl core::fmt::Display for $unknown {
            fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                formatter.write_str($told)
            }
        }

        impl core::error::Error for $unknown {}

        impl core::str::FromStr for $type {
            type Err = $unknown;
            fn from_str(name: &str) -> Result<Self, Self::Err> {
                Self::ALL.into_iter().find(|one| one.name() == name).ok_or($unknown)
            }
        }
    };
}
pub(crate) use named;
