//! Connects the functions that the bindings export with a [`HeaderFilter`].

use alloc::string::String;
use alloc::vec::Vec;
use core::marker::PhantomData;

use crate::bindings::exports::tollgate::plugin::headers::Guest;
use crate::{Edit, HeaderFilter, Plans, Refusal, Request, Response, from_config, refuse};

/// Implements the exports of the world with `F`.
#[doc(hidden)]
#[derive(Debug)]
pub struct Adapter<F>(PhantomData<F>);

impl<F: HeaderFilter> Guest for Adapter<F> {
    fn plan(config: String) -> Result<Plans, String> {
        F::plan(&from_config(&config)?)
    }

    fn filter_request(config: String, request: Request) -> Result<Vec<Edit>, Refusal> {
        F::filter_request(&read(&config)?, &request)
    }

    fn filter_response(config: String, response: Response) -> Result<Vec<Edit>, Refusal> {
        F::filter_response(&read(&config)?, &response)
    }
}

/// Reads the configuration. `plan` accepted the same text at load, so a failure here is a fault of
/// the guest.
fn read<F: serde::de::DeserializeOwned + Default>(config: &str) -> Result<F, Refusal> {
    from_config(config).map_err(|_| refuse(500, "the plugin cannot read its configuration"))
}
