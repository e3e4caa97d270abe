/* Goes to the login page when the session has ended. Otherwise an open page would keep showing old numbers. */
(function () {
    "use strict";

    const ask = window.fetch;
    window.fetch = function () {
        return ask.apply(this, arguments).then(function (answer) {
            if (answer.status === 401 && new URL(answer.url).origin === window.location.origin) {
                const page = window.location.pathname + window.location.search;
                window.location.assign("/login?next=" + encodeURIComponent(page));
            }
            return answer;
        });
    };
})();
