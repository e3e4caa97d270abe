/* The component Markup: HTML elements without ids and callbacks. Python: dashboard/components/markup.py. */
(function () {
    "use strict";

    const h = window.React.createElement;

    // Follows a link inside the application without loading the application again.
    function follow(event) {
        const link = event.currentTarget;
        if (event.metaKey || event.shiftKey || event.altKey || event.ctrlKey || link.target) { return; }
        event.preventDefault();
        window.barrierscope.go(link.getAttribute("href"));
    }

    function element(node) {
        if (!Array.isArray(node)) { return node; }
        let [tag, attributes, ...children] = node;
        if ("href" in attributes) {
            // An address such as "javascript:..." becomes "about:blank".
            attributes = Object.assign({}, attributes, { href: window.dash_clientside.clean_url(attributes.href) });
            if (tag === "link") { attributes.onClick = follow; }
        }
        return h(tag === "link" ? "a" : tag, attributes, ...children.map(element));
    }

    window.barrierscope_components = Object.assign(window.barrierscope_components || {}, {
        Markup: function (props) { return h(window.React.Fragment, null, ...props.nodes.map(element)); },
    });
})();
