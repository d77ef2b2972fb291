//! How to answer a store that ends later.

use super::Answer;
use super::telling::Telling;
use laneway_wire::MetaKey;

/// How to answer, without borrowing the request.
pub(super) enum AnswerOwned {
    Text { noreply: bool },
    Meta { key: Box<[u8]>, base64: bool, flags: Box<[u8]>, quiet: bool },
    Binary(Telling),
    Resp,
}

impl AnswerOwned {
    pub(super) fn of(answer: &Answer<'_>) -> AnswerOwned {
        match *answer {
            Answer::Text { noreply } => AnswerOwned::Text { noreply },
            Answer::Meta { key, flags, quiet } => AnswerOwned::Meta {
                key: key.token.into(),
                base64: key.base64,
                flags: flags.into(),
                quiet,
            },
            Answer::Binary(telling) => AnswerOwned::Binary(telling),
            Answer::Resp => AnswerOwned::Resp,
        }
    }

    pub(super) fn borrow(&self) -> Answer<'_> {
        match self {
            AnswerOwned::Text { noreply } => Answer::Text { noreply: *noreply },
            AnswerOwned::Meta { key, base64, flags, quiet } => {
                Answer::Meta { key: MetaKey { token: key, base64: *base64 }, flags, quiet: *quiet }
            }
            AnswerOwned::Binary(telling) => Answer::Binary(*telling),
            AnswerOwned::Resp => Answer::Resp,
        }
    }
}
