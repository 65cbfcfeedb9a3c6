-- The requests that wrk sends: one POST of 1 KiB, with a key that is new, known, or absent.
-- wrk -s load.lua URL -- new|known|absent SEED

local threads = 0

function setup(thread)
    thread:set("number", threads)
    threads = threads + 1
end

local KNOWN_KEYS = 5000 -- by thread; a thread starts again from the first
local start = '{"amount":1000,"currency":"eur","note":"'
local body = start .. string.rep("x", 1024 - #start - 2) .. '"}'
local head, tail, next_key

function init(args)
    local kind, seed = args[1], tonumber(args[2])
    -- Only the difference between the threads' seeds makes their keys differ.
    math.randomseed(seed * 64 + number)
    head = "POST /charge HTTP/1.1\r\nHost: " .. wrk.host .. ":" .. wrk.port ..
        "\r\nAuthorization: Bearer bench\r\nContent-Type: application/json\r\nContent-Length: " .. #body
    tail = "\r\n\r\n" .. body
    if kind == "new" then
        head = head .. "\r\nIdempotency-Key: "
        next_key = uuid4
    elseif kind == "known" then
        head = head .. "\r\nIdempotency-Key: "
        next_key = known_key()
    else
        next_key = function() return "" end
    end
end

function uuid4()
    local random = math.random
    return string.format('"%08x-%04x-4%03x-%04x-%06x%06x"', random(0, 0xffffffff), random(0, 0xffff),
        random(0, 0xfff), random(0x8000, 0xbfff), random(0, 0xffffff), random(0, 0xffffff))
end

function known_key()
    local keys, at = {}, 0
    for i = 1, KNOWN_KEYS do
        keys[i] = string.format('"%08x-0000-4000-8000-%012x"', number, i)
    end
    return function()
        at = at % KNOWN_KEYS + 1
        return keys[at]
    end
end

function request()
    return head .. next_key() .. tail
end

function done(summary, latency)
    local errors = summary.errors
    io.write(string.format(
        '\nRESULT {"requests":%d,"seconds":%f,"refused":%d,"socket_errors":%d,"p50_ms":%f,"p99_ms":%f}\n',
        summary.requests, summary.duration / 1e6, errors.status,
        errors.connect + errors.read + errors.write + errors.timeout,
        latency:percentile(50) / 1e3, latency:percentile(99) / 1e3))
end
