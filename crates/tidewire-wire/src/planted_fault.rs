//! Faults that are built in on purpose, so that the fuzzer can be seen to find them. One is planted only if its feature
//! is the only one of them, so a build with all features has none; neither has any release.

/// A text of a message is taken although one byte of it is missing.
pub(crate) const LENGTH: bool = cfg!(all(
    feature = "planted-fault-length",
    not(any(
        feature = "planted-fault-slice",
        feature = "planted-fault-allocation",
        feature = "planted-fault-inflate",
        feature = "planted-fault-escape"
    )),
));

/// An unknown field is passed over without a look at how many bytes there are.
pub(crate) const SLICE: bool = cfg!(all(
    feature = "planted-fault-slice",
    not(any(
        feature = "planted-fault-length",
        feature = "planted-fault-allocation",
        feature = "planted-fault-inflate",
        feature = "planted-fault-escape"
    )),
));

/// Memory is reserved for as many bytes as a message announces, up to 1 GiB.
pub(crate) const ALLOCATION: bool = cfg!(all(
    feature = "planted-fault-allocation",
    not(any(
        feature = "planted-fault-length",
        feature = "planted-fault-slice",
        feature = "planted-fault-inflate",
        feature = "planted-fault-escape"
    )),
));

/// A compressed message is inflated however long it becomes.
pub(crate) const INFLATE: bool = cfg!(all(
    feature = "planted-fault-inflate",
    not(any(
        feature = "planted-fault-length",
        feature = "planted-fault-slice",
        feature = "planted-fault-allocation",
        feature = "planted-fault-escape"
    )),
));

/// A text is written as it stands, whatever it would end.
pub(crate) const ESCAPE: bool = cfg!(all(
    feature = "planted-fault-escape",
    not(any(
        feature = "planted-fault-length",
        feature = "planted-fault-slice",
        feature = "planted-fault-allocation",
        feature = "planted-fault-inflate"
    )),
));

/// Whether this build has one of them.
pub const ANY: bool = LENGTH || SLICE || ALLOCATION || INFLATE || ESCAPE;
