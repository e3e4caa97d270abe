/* The component AgGrid on pages that show no grid at once: its script is loaded when the first grid is shown. */
(function () {
    "use strict";

    // The pages that show a grid at once have the script already.
    if (window.dash_ag_grid) { return; }
    let loading = null;

    function load() {
        loading = loading || new Promise(function (resolve, reject) {
            const script = document.createElement("script");
            script.src = document.querySelector("meta[name=grid-script]").content;
            script.onload = function () {
                const loaded = window.dash_ag_grid;
                // The component stays the one below: with another one, React would build every grid a second time.
                window.dash_ag_grid = Object.assign({}, loaded, { AgGrid: AgGrid });
                resolve(loaded.AgGrid);
            };
            script.onerror = function () {
                loading = null;
                reject(new Error("the script of the grid could not be loaded"));
            };
            document.head.append(script);
        });
        return loading;
    }

    function AgGrid(props) {
        const [real, setReal] = window.React.useState(null);
        window.React.useEffect(function () {
            let isShown = true;
            // A function as the new state would be called by React.
            load().then((component) => { if (isShown) { setReal({ component: component }); } });
            return function () { isShown = false; };
        }, []);
        return real ? window.React.createElement(real.component, props) : null;
    }
    // Dash then tells the component why it is drawn again.
    AgGrid.dashRenderType = true;

    window.dash_ag_grid = {
        AgGrid: AgGrid,
        getApi: () => null,
        getApiAsync: (id) => load().then(() => window.dash_ag_grid.getApiAsync(id)),
    };
})();
