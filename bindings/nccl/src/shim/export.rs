//! The macro that turns a [`crate::NetPlugin`] into exported symbols.

use crate::Exported;

/// What the loader calls when it unloads the library or the process exits.
pub type Unload = extern "C" fn();

/// Frees what tables below v11 left; see [`crate::Global::unload`].
#[doc(hidden)]
pub extern "C" fn unload<P: Exported>() {
    // Whatever happens here, the process goes on.
    if let Err(payload) = std::panic::catch_unwind(|| P::global().unload()) {
        std::mem::forget(payload);
    }
}

/// Exports `ncclNetPlugin_v6` to `ncclNetPlugin_v12` for a type that implements [`crate::NetPlugin`]. Once per
/// library. Works under `#![forbid(unsafe_code)]`.
#[macro_export]
macro_rules! export_net_plugin {
    ($plugin:ty) => {
        impl $crate::Exported for $plugin {
            fn global() -> &'static $crate::Global<Self> {
                static GLOBAL: $crate::Global<$plugin> = $crate::Global::new();
                &GLOBAL
            }
        }
        $crate::export_net_plugin!(@symbols $plugin);
    };
    // Of a type that implements [`crate::Exported`] already.
    (@symbols $plugin:ty) => {
        const _: () = {
            #[used]
            #[unsafe(link_section = ".fini_array")]
            static UNLOAD: $crate::shim::Unload = $crate::shim::unload::<$plugin>;
        };
        $crate::export_net_plugin!(@table $plugin, ncclNetPlugin_v6, NetV6, v6);
        $crate::export_net_plugin!(@table $plugin, ncclNetPlugin_v7, NetV7, v7);
        $crate::export_net_plugin!(@table $plugin, ncclNetPlugin_v8, NetV8, v8);
        $crate::export_net_plugin!(@table $plugin, ncclNetPlugin_v9, NetV9, v9);
        $crate::export_net_plugin!(@table $plugin, ncclNetPlugin_v10, NetV10, v10);
        $crate::export_net_plugin!(@table $plugin, ncclNetPlugin_v11, NetV11, v11);
        $crate::export_net_plugin!(@table $plugin, ncclNetPlugin_v12, NetV12, v12);
    };
    (@table $plugin:ty, $symbol:ident, $table:ident, $make:ident) => {
        #[doc = concat!("The table `", stringify!($symbol), "` that NCCL and RCCL look up.")]
        #[allow(non_upper_case_globals, reason = "the name is NCCL's")]
        #[unsafe(no_mangle)]
        pub static $symbol: $crate::abi::$table = $crate::shim::$make::<$plugin>();
    };
}
