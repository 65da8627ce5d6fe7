//! The function that replaces the annotated one.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Error, FnArg, GenericArgument, ItemFn, Pat, PathArguments, Result, ReturnType, Signature, Type, TypePath};

use crate::arguments::{Arguments, OnError};

pub(crate) fn expand(arguments: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let function: ItemFn = syn::parse2(item)?;
    let arguments: Arguments = syn::parse2(arguments)?;
    check(&function.sig)?;
    let (value, error) = result_types(&function.sig)?;
    let ItemFn { attrs, vis, sig, block } = &function;
    let Signature { ident, generics, inputs, .. } = sig;
    let where_clause = &generics.where_clause;
    let Arguments { engine, scope, business_type, key, fingerprint, policy, on_error } = &arguments;
    let failed = match on_error {
        OnError::Unknown => quote!(Unknown),
        OnError::NothingDone => quote!(NothingDone),
    };
    Ok(quote! {
        #(#attrs)*
        #vis async fn #ident #generics (#inputs)
            -> ::core::result::Result<#value, ::landfall::idempotency::Error<#error>> #where_clause
        {
            let __identity = ::landfall::idempotency::Identity::new(#scope, #business_type, #key)?;
            let __fingerprint = ::landfall::idempotency::fingerprint_of(&(#fingerprint))?;
            let __policy: ::landfall::idempotency::Policy = #policy;
            let __engine: ::landfall::idempotency::Idempotency = ::core::clone::Clone::clone(&#engine);
            let __work = move |_| async move {
                let __result: ::core::result::Result<#value, #error> = async move #block.await;
                match __result {
                    ::core::result::Result::Ok(value) => ::landfall::idempotency::Work::Done(value),
                    ::core::result::Result::Err(error) => ::landfall::idempotency::Work::#failed(error),
                }
            };
            let __answer = __engine.run(&__identity, &__fingerprint, &__policy, __work).await?;
            ::core::result::Result::Ok(__answer.value)
        }
    })
}

/// Refuses functions that could not run in a task of their own.
fn check(signature: &Signature) -> Result<()> {
    if signature.asyncness.is_none() {
        return Err(Error::new_spanned(signature.fn_token, "`idempotent` needs an async function"));
    }
    for input in &signature.inputs {
        match input {
            FnArg::Receiver(receiver) if receiver.reference.is_some() => {
                let text =
                    "`idempotent` runs the body in a task of its own, which cannot borrow; take `self: Arc<Self>`";
                return Err(Error::new_spanned(receiver, text));
            }
            FnArg::Typed(typed) if matches!(&*typed.ty, Type::Reference(_)) => {
                let text = "`idempotent` runs the body in a task of its own, which cannot borrow; take an owned value";
                return Err(Error::new_spanned(typed, text));
            }
            FnArg::Typed(typed) if !matches!(&*typed.pat, Pat::Ident(_) | Pat::Wild(_)) => {
                return Err(Error::new_spanned(&typed.pat, "`idempotent` needs a name for each argument"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Returns `T` and `E` of the return type `Result<T, E>`.
fn result_types(signature: &Signature) -> Result<(Type, Type)> {
    let refused = || Error::new_spanned(signature, "`idempotent` needs a function that returns `Result<T, E>`");
    let ReturnType::Type(_, returned) = &signature.output else { return Err(refused()) };
    let Type::Path(TypePath { path, .. }) = &**returned else { return Err(refused()) };
    let last = path.segments.last().filter(|segment| segment.ident == "Result").ok_or_else(refused)?;
    let PathArguments::AngleBracketed(generic) = &last.arguments else { return Err(refused()) };
    let types: Vec<&Type> = generic
        .args
        .iter()
        .filter_map(|argument| if let GenericArgument::Type(one) = argument { Some(one) } else { None })
        .collect();
    match types[..] {
        [value, error] => Ok((value.clone(), error.clone())),
        _ => Err(refused()),
    }
}
