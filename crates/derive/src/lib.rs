//! `#[derive(Module)]`: a struct whose fields are modules is a module; each field is a child of its name.
//!
//! On a field, `#[module(name = "self_attn")]` gives the child another name, `#[module(flatten)]` none at all, and
//! `#[module(skip)]` leaves the field out.

#![forbid(unsafe_code)]

use proc_macro::TokenStream;
use proc_macro2::TokenStream as Tokens;
use quote::quote;
use syn::ext::IdentExt;
use syn::{Data, DeriveInput, Error, Field, Fields, LitStr, parse_macro_input};

/// Derives `Module` for a struct with named fields.
#[proc_macro_derive(Module, attributes(module))]
pub fn module(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    derive(&input).unwrap_or_else(Error::into_compile_error).into()
}

fn derive(input: &DeriveInput) -> Result<Tokens, Error> {
    let fields = match &input.data {
        Data::Struct(data) => match &data.fields {
            Fields::Named(fields) => &fields.named,
            other => {
                return Err(Error::new_spanned(other, "`Module` needs named fields: they name the children"));
            }
        },
        _ => return Err(Error::new_spanned(&input.ident, "`Module` is derived for structs")),
    };
    let children = fields.iter().map(child).collect::<Result<Vec<_>, Error>>()?;
    let (name, kind) = (&input.ident, input.ident.unraw().to_string());
    let (impl_generics, type_generics, where_clause) = input.generics.split_for_impl();
    Ok(quote! {
        impl #impl_generics ::weighbridge::Module for #name #type_generics #where_clause {
            fn declare(&self, tree: &mut ::weighbridge::module::Tree) {
                #(#children)*
            }

            fn kind(&self) -> &'static str {
                #kind
            }
        }
    })
}

/// What a field adds to its parent's tree.
fn child(field: &Field) -> Result<Tokens, Error> {
    let Some(ident) = &field.ident else { return Ok(Tokens::new()) };
    let (mut name, mut flatten, mut skip) = (ident.unraw().to_string(), false, false);
    for attribute in field.attrs.iter().filter(|a| a.path().is_ident("module")) {
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("name") {
                name = meta.value()?.parse::<LitStr>()?.value();
            } else if meta.path.is_ident("flatten") {
                flatten = true;
            } else if meta.path.is_ident("skip") {
                skip = true;
            } else {
                return Err(meta.error("wanted `name = \"…\"`, `flatten` or `skip`"));
            }
            Ok(())
        })?;
    }
    Ok(match (skip, flatten) {
        (true, _) => Tokens::new(),
        (_, true) => quote! { ::weighbridge::Module::declare(&self.#ident, tree); },
        _ => quote! { tree.child(#name, &self.#ident); },
    })
}
