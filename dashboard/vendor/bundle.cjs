// Builds the part of plotly.js that the charts use: the trace types scatter, bar and heatmap.
// `make plotly-bundle` installs the packages and runs this script. Argument: the file to write.
const esbuild = require("esbuild");
const { environmentPlugin } = require("esbuild-plugin-environment");
const { glsl } = require("esbuild-plugin-glsl");
const inlineCss = require("esbuild-plugin-inline-css");
const { version } = require("plotly.js/package.json");

// No chart uses these components of the module `core`. A component without methods takes the place of each.
const unused = ["annotations3d", "images", "updatemenus", "sliders", "rangeslider", "rangeselector", "errorbars"];
const withoutUnused = {
    name: "without-unused",
    setup(build) {
        const filter = new RegExp(`plotly\\.js/src/components/(${unused.join("|")})/index\\.js$`);
        build.onLoad({ filter }, function (args) {
            const [, name] = args.path.match(filter);
            return { contents: `module.exports = { moduleType: "component", name: "${name}" };` };
        });
    },
};

esbuild.build({
    // The module `core` contains the trace type scatter.
    stdin: {
        contents: `const Plotly = require("plotly.js/lib/core");
Plotly.register([require("plotly.js/lib/bar"), require("plotly.js/lib/heatmap")]);
module.exports = Plotly;`,
        resolveDir: process.cwd(),
    },
    outfile: process.argv[2],
    bundle: true,
    minify: true,
    format: "iife",
    globalName: "Plotly",
    target: "es2016",
    // The settings below are those with which plotly.js builds its own bundles.
    plugins: [withoutUnused, inlineCss(), glsl({ minify: true }), environmentPlugin({ NODE_DEBUG: false })],
    alias: { regl: "@plotly/regl", stream: "stream-browserify" },
    define: { global: "window", "define.amd": "false" },
    banner: {
        js: `/**
* plotly.js (scatter, bar, heatmap - minified) v${version}
* Copyright 2012-2026, Plotly, Inc.
* All rights reserved.
* Licensed under the MIT license
*/`,
    },
}).catch(() => process.exit(1));
