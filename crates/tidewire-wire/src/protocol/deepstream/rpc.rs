//! Topic RPC: requests and responses.

use tidewire_core::message::{Call, Reason, Refusal, Rpc, RpcAction};

use super::action::rpc as action;
use super::fields::Fields;
use super::{DecodeError, Dialect};

/// The caller's error for a request with invalid data. A client drops the call at INVALID_MESSAGE_DATA without
/// informing the caller, so the server sends this as if a provider had answered.
const REFUSED_REQUEST: &str = "\"INVALID_MESSAGE_DATA\"";

/// The rpc message in `fields`, `None` for an action that no peer sends.
pub(super) fn from_wire(fields: Fields<'_>) -> Result<Option<Rpc<'_>>, DecodeError> {
    let (correlation, data) = (fields.correlation, fields.data);
    let call = Call {
        name: fields.name(),
        correlation: correlation.unwrap_or_default(),
    };
    Ok(Some(match fields.action {
        action::PROVIDE if fields.is_ack() => Rpc::Ack {
            provide: true,
            correlation,
        },
        action::UNPROVIDE if fields.is_ack() => Rpc::Ack {
            provide: false,
            correlation,
        },
        action::PROVIDE => Rpc::Provide {
            names: fields.names.into_owned(),
            correlation,
        },
        action::UNPROVIDE => Rpc::Unprovide {
            names: fields.names.into_owned(),
            correlation,
        },
        action::REQUEST => Rpc::Request {
            call,
            data,
            requestor_name: fields.requestor_name,
            requestor_data: fields.requestor_data,
        },
        action::ACCEPT => Rpc::Accept(call),
        action::REJECT => Rpc::Reject(call),
        action::RESPONSE => Rpc::Response { call, data },
        action::REQUEST_ERROR => Rpc::RequestError { call, data },
        _ => return error_from_wire(&fields, call).map(|error| error.map(Rpc::Error)),
    }))
}

fn error_from_wire<'a>(
    fields: &Fields<'a>,
    call: Call<'a>,
) -> Result<Option<Refusal<'a, RpcAction>>, DecodeError> {
    let refused = |reason| fields.refusal(reason, action_from_wire);
    let failed = |reason| call.refusal(reason, RpcAction::Request);
    Ok(Some(match fields.action {
        action::MESSAGE_DENIED => refused(Reason::Denied)?,
        action::MESSAGE_PERMISSION_ERROR => refused(Reason::RuleFailed)?,
        action::INVALID_MESSAGE_DATA => refused(Reason::InvalidData)?,
        action::MULTIPLE_PROVIDERS => {
            fields.named_refusal(Reason::MultipleProviders, RpcAction::Provide)
        }
        action::NO_RPC_PROVIDER => failed(Reason::NoProvider),
        action::ACCEPT_TIMEOUT => failed(Reason::AcceptTimeout),
        action::RESPONSE_TIMEOUT => failed(Reason::ResponseTimeout),
        action::MULTIPLE_ACCEPT => call.refusal(Reason::MultipleAccept, RpcAction::Accept),
        action::INVALID_RPC_CORRELATION_ID => {
            let action = fields.original(action_from_wire)?;
            call.refusal(Reason::InvalidCorrelation, action)
        }
        _ => return Ok(None),
    }))
}

pub(super) fn to_wire<'m>(dialect: Dialect, message: &'m Rpc<'_>) -> Fields<'m> {
    match message {
        Rpc::Provide { names, correlation } => Fields::bulk(action::PROVIDE, names, *correlation),
        Rpc::Unprovide { names, correlation } => {
            Fields::bulk(action::UNPROVIDE, names, *correlation)
        }
        Rpc::Ack {
            provide: true,
            correlation,
        } => Fields::ack(action::PROVIDE, *correlation),
        Rpc::Ack {
            provide: false,
            correlation,
        } => Fields::ack(action::UNPROVIDE, *correlation),
        Rpc::Request {
            call,
            data,
            requestor_name,
            requestor_data,
        } => Fields {
            data: *data,
            requestor_name: *requestor_name,
            requestor_data: *requestor_data,
            ..of_call(action::REQUEST, call)
        },
        Rpc::Accept(call) => of_call(action::ACCEPT, call),
        Rpc::Reject(call) => of_call(action::REJECT, call),
        Rpc::Response { call, data } => Fields {
            data: *data,
            ..of_call(action::RESPONSE, call)
        },
        Rpc::RequestError { call, data } => Fields {
            data: *data,
            ..of_call(action::REQUEST_ERROR, call)
        },
        Rpc::Error(error) => error_to_wire(dialect, error),
    }
}

fn error_to_wire<'m>(dialect: Dialect, refusal: &Refusal<'m, RpcAction>) -> Fields<'m> {
    let refused = |number| Fields::refused(number, refusal, action_to_wire);
    let call = Call {
        name: refusal.name.unwrap_or_default(),
        correlation: refusal.correlation.unwrap_or_default(),
    };
    match refusal.reason {
        Reason::RuleFailed => refused(action::MESSAGE_PERMISSION_ERROR),
        Reason::InvalidData
            if refusal.action == RpcAction::Request && dialect != Dialect::Server =>
        {
            Fields {
                data: Some(REFUSED_REQUEST),
                ..of_call(action::REQUEST_ERROR, &call)
            }
        }
        Reason::InvalidData => refused(action::INVALID_MESSAGE_DATA),
        Reason::MultipleProviders => Fields {
            original_action: Some(action::PROVIDE),
            ..Fields::named(action::MULTIPLE_PROVIDERS, call.name)
        },
        Reason::NoProvider => of_call(action::NO_RPC_PROVIDER, &call),
        Reason::AcceptTimeout => of_call(action::ACCEPT_TIMEOUT, &call),
        Reason::ResponseTimeout => of_call(action::RESPONSE_TIMEOUT, &call),
        Reason::MultipleAccept => of_call(action::MULTIPLE_ACCEPT, &call),
        Reason::InvalidCorrelation => Fields {
            original_action: Some(action_to_wire(refusal.action)),
            is_error: Some(true),
            ..of_call(action::INVALID_RPC_CORRELATION_ID, &call)
        },
        // Calls have no other reasons.
        _ => refused(action::MESSAGE_DENIED),
    }
}

fn of_call<'m>(action: u32, call: &Call<'m>) -> Fields<'m> {
    Fields {
        correlation: Some(call.correlation),
        ..Fields::named(action, call.name)
    }
}

fn action_from_wire(number: u32) -> Option<RpcAction> {
    match number {
        action::PROVIDE => Some(RpcAction::Provide),
        action::REQUEST => Some(RpcAction::Request),
        action::ACCEPT => Some(RpcAction::Accept),
        action::RESPONSE => Some(RpcAction::Response),
        action::REQUEST_ERROR => Some(RpcAction::RequestError),
        action::REJECT => Some(RpcAction::Reject),
        _ => None,
    }
}

fn action_to_wire(action: RpcAction) -> u32 {
    match action {
        RpcAction::Provide => action::PROVIDE,
        RpcAction::Request => action::REQUEST,
        RpcAction::Accept => action::ACCEPT,
        RpcAction::Response => action::RESPONSE,
        RpcAction::RequestError => action::REQUEST_ERROR,
        RpcAction::Reject => action::REJECT,
    }
}
